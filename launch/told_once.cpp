// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/told_warnings.h>
#include <peal/launch/told_once.h>

#include <algorithm>

namespace peal::launch {

std::vector<std::string> told_once(const std::vector<std::string>& by_rank) {
  struct Alike {
    std::string text, rest;  // of the first, and without its number
    std::vector<int> ranks;
  };
  std::vector<Alike> all;
  for (int rank = 0; rank < static_cast<int>(by_rank.size()); ++rank) {
    const std::string& text = by_rank[static_cast<std::size_t>(rank)];
    if (text.empty()) continue;
    const std::string rest = without_rank(text, rank);
    auto found = std::ranges::find(all, rest, &Alike::rest);
    if (found == all.end()) found = all.insert(all.end(), {text, rest, {}});
    found->ranks.push_back(rank);
  }
  std::vector<std::string> told;
  for (const Alike& each : all) {
    told.push_back(each.text + in_brackets({each.ranks.size(), each.ranks}));
  }
  return told;
}

}  // namespace peal::launch
