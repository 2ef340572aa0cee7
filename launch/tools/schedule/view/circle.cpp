// SPDX-License-Identifier: Apache-2.0
#include <peal/launch/tools/schedule/view/circle.h>

#include <algorithm>
#include <map>
#include <set>

namespace peal::launch {
namespace {

using Waits = std::map<int, std::set<int>>;  // for whom a rank waits

// From the end of `path` back to its first rank, by ranks that no walk has been to.
bool closes(const Waits& waits, std::vector<int>& path, std::set<int>& seen) {
  const auto found = waits.find(path.back());
  if (found == waits.end()) return false;
  for (const int next : found->second) {
    if (next == path.front()) return true;
    if (!seen.insert(next).second) continue;
    path.push_back(next);
    if (closes(waits, path, seen)) return true;
    path.pop_back();
  }
  return false;
}

}  // namespace

std::vector<int> circle_of(const std::vector<comm::RowWaiting>& waiting) {
  Waits waits;
  for (const comm::RowWaiting& one : waiting) {
    // A signal waits for nobody.
    if (one.step->kind != comm::Kind::signal) waits[one.rank].insert(one.step->peer);
  }
  for (const auto& [rank, peers] : waits) {
    std::vector<int> path{rank};
    std::set<int> seen{rank};
    if (closes(waits, path, seen)) return path;
  }
  return {};
}

}  // namespace peal::launch
