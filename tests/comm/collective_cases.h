// SPDX-License-Identifier: Apache-2.0
// What every transport must get right, as one function over a group: all operations, types and
// reductions on integer-valued data, for which sums are exact in any order, so results compare for
// equality. Tensors are on the context's device, and read on the calling thread's current stream.
#pragma once

#include <peal/comm/group/process_group.h>

namespace peal::comm::testing {

struct Tally {
  std::int64_t cases = 0;     // calls with arguments of their own; equal on all ranks
  std::int64_t compared = 0;  // elements, on this rank
};

// ThreadSanitizer sees who touches what, and when, which is the same for all types and reductions:
// under it few of them are gone through, at fewer ranks.
#ifdef __SANITIZE_THREAD__
inline constexpr Tally fewest = {.cases = 150, .compared = 20000};
inline constexpr int worlds[] = {3, 4};
#else
inline constexpr Tally fewest = {.cases = 2000, .compared = 100000};
inline constexpr int worlds[] = {1, 2, 3, 4, 5};
#endif

// Throws Error that names the case where a result is wrong.
Tally check_collectives(const ProcessGroup& group);

// The same for one type and a few sizes.
Tally check_algorithms(const ProcessGroup& group);

// One operation, for one type and a few sizes: for going through its algorithms.
Tally check_algorithm(const ProcessGroup& group, Collective what);

}  // namespace peal::comm::testing
