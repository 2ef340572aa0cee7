// SPDX-License-Identifier: Apache-2.0
// What every transport must get right, as one function over a group: all operations, types and
// reductions on integer-valued data, for which sums are exact in any order, so results compare for
// equality.
#pragma once

#include <peal/comm/process_group.h>

namespace peal::comm::testing {

// Returns how many results were compared; throws Error that names the case where one is wrong.
std::int64_t check_collectives(ProcessGroup& group);

// The same for one type and a few sizes: for going through the algorithms.
std::int64_t check_algorithms(ProcessGroup& group);

}  // namespace peal::comm::testing
