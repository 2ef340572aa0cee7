// SPDX-License-Identifier: Apache-2.0
// Placement: which rank owns which parameter, as a value. A pure function of what the parameters
// count and of the number of ranks, so every rank makes the same one, and it can be printed, tested
// without ranks, and compared when training starts.
//
// Greedy (FairScale's OSS): in the order of declaration each whole parameter goes to the rank that
// has the least so far, and of several such ranks to the first. So what is added later changes
// nothing for those that were there. No rank has more than the mean and one parameter.
//
//   sizes 10, 1, 1, 1, 7, 3 on 3 ranks:  owners 0, 1, 2, 1, 2, 1;  loads 10, 5, 8
//
// Thread safety: pure functions and values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace peal::nn {

struct Placement {
  int world = 1;
  std::vector<int> owners;           // by parameter
  std::vector<std::int64_t> counts;  // and what each counts, in elements
  // Of each rank.
  std::vector<std::int64_t> loads() const;
  bool operator==(const Placement&) const = default;
};

// `counts`: of all parameters. Those that `before` has keep their owners, and what they counted
// there. Error for fewer parameters than there were, a negative count, and another world.
Placement place_greedily(std::span<const std::int64_t> counts, int world,
                         const Placement& before = {});

// A table: a line for each parameter, and one for each rank. Error for another number of names.
std::string describe(const Placement& placement, std::span<const std::string> names);

// Messages: what owners send to all, as a value too. Small parameters of an owner travel together,
// as long as they have fewer bytes than `together`; one that has as many goes alone, without being
// copied.
struct Message {
  int owner = 0;
  std::vector<std::size_t> parameters;
  bool operator==(const Message&) const = default;
};

// `bytes`: of each parameter, and 0 for one that is not sent. `kinds`: only equal ones (of type and
// device, say) travel together. In the order in which messages are full; what is left comes by
// owner, then kind. Error where there are not as many of each as parameters.
std::vector<Message> plan_messages(const Placement& placement, std::span<const std::int64_t> bytes,
                                   std::span<const int> kinds, std::int64_t together);

}  // namespace peal::nn
