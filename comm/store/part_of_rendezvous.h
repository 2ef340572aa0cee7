// SPDX-License-Identifier: Apache-2.0
// PartOfRendezvous: a rendezvous as some of its ranks see it, while the others do the same for
// theirs: the ranks of a node, say. Collective over all ranks of the one beneath, which must
// outlive it. Thread safety: as Rendezvous.
#pragma once

#include <peal/comm/store/rendezvous.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace peal::comm {

class PartOfRendezvous : public Rendezvous {
 public:
  // `ranks`: of the one beneath, ascending, with this one.
  PartOfRendezvous(Rendezvous& whole, std::vector<int> ranks)
      : whole_(whole), ranks_(std::move(ranks)) {}
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
  void check() override { whole_.check(); }

 private:
  Rendezvous& whole_;
  std::vector<int> ranks_;
};

}  // namespace peal::comm
