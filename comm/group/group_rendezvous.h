// SPDX-License-Identifier: Apache-2.0
// GroupRendezvous: the ranks of a group that exists, for what is made beside it. Thread
// safety: as the group's.
#pragma once

#include <peal/comm/group/process_group.h>
#include <peal/comm/store/rendezvous.h>

#include <string>
#include <utility>
#include <vector>

namespace peal::comm {

class GroupRendezvous : public Rendezvous {
 public:
  explicit GroupRendezvous(ProcessGroup group) : group_(std::move(group)) {}
  int rank() const override { return group_.rank(); }
  int world() const override { return group_.world(); }
  std::vector<std::string> exchange(const std::string& mine) override {
    return group_.all_gather_object(mine);
  }

 private:
  ProcessGroup group_;
};

}  // namespace peal::comm
