// SPDX-License-Identifier: Apache-2.0
// PartOfStore: a store as some of its ranks see it, while the others do the same for theirs: the
// ranks of a node, say. Collective over all ranks of the store beneath, which must outlive it.
// Thread safety: as Store.
#pragma once

#include <peal/comm/store/store.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace peal::comm {

class PartOfStore : public Store {
 public:
  // `ranks`: of the store beneath, ascending, with this one.
  PartOfStore(Store& whole, std::vector<int> ranks) : whole_(whole), ranks_(std::move(ranks)) {}
  int rank() const override {
    return static_cast<int>(std::ranges::find(ranks_, whole_.rank()) - ranks_.begin());
  }
  int world() const override { return static_cast<int>(ranks_.size()); }
  std::vector<std::string> exchange(const std::string& mine) override {
    const auto all = whole_.exchange(mine);
    std::vector<std::string> part;
    for (const int rank : ranks_) part.push_back(all[static_cast<std::size_t>(rank)]);
    return part;
  }

 private:
  Store& whole_;
  std::vector<int> ranks_;
};

}  // namespace peal::comm
