// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cores.h>
#include <peal/autograd/core/error.h>
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
    std::string rest = text;
    const std::string own = concat("rank ", rank, " ");
    if (const auto at = rest.find(own); at != rest.npos) rest.replace(at, own.size(), "rank ");
    auto found = std::ranges::find(all, rest, &Alike::rest);
    if (found == all.end()) found = all.insert(all.end(), {text, rest, {}});
    found->ranks.push_back(rank);
  }
  std::vector<std::string> told;
  for (const Alike& each : all) {
    const std::size_t times = each.ranks.size();
    told.push_back(times == 1
                       ? each.text
                       : concat(each.text, " (x", times, ": ranks ", cpu_list(each.ranks), ")"));
  }
  return told;
}

}  // namespace peal::launch
