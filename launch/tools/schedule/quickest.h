// SPDX-License-Identifier: Apache-2.0
#pragma once

// Quickest: rules for the sizes of a collective, of what its algorithms took at some of them.
//
// Times are noisy, and a rule for every size that was measured would be one for the noise. So an
// algorithm keeps the sizes next to its own unless another is worth the change: of all ways to go
// through the sizes that one is taken whose lost time, with a price for every change, is least
// (dynamic programming). Pure functions.

#include <peal/comm/group/selection.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace peal::launch {

// What the algorithms took at one size.
struct TimesAt {
  std::int64_t bytes;
  // By kind of memory, by algorithm: seconds, or infinity for what does not serve. The same kinds
  // and algorithms at all sizes.
  std::vector<std::vector<double>> seconds;
};

// How much is lost by each algorithm, as a logarithm: 0 for the quickest, 0.1 for 10 % more; over
// kinds of memory the mean.
std::vector<double> losses(const TimesAt& times);

// Which algorithm has each size. REQUIRES sizes, and for each an algorithm that serves.
std::vector<std::size_t> quickest(const std::vector<TimesAt>& sizes, double price_of_change);

// Rules for all sizes, from 0 on. Between two sizes that have different algorithms the change is
// where lines through their times, on logarithmic scales, cross.
std::vector<comm::Rules::Rule> quickest_rules(comm::Collective what,
                                              const std::vector<std::string>& algorithms,
                                              const std::vector<TimesAt>& sizes);

}  // namespace peal::launch
