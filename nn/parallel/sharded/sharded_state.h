// SPDX-License-Identifier: Apache-2.0
// Sharded state: a model's or an optimizer's, which lies with all ranks, as a part of a checkpoint
// (nn/checkpoint.h), which one rank saves and all load. All ranks bring it together on that one
// first; until it has saved it alone holds the whole. Of a sharded checkpoint
// (sharded_checkpoint.h) each rank saves and loads its part, and nobody has the whole. Thread
// safety: as of what it is of.
#pragma once

#include <peal/autograd/core/safetensors.h>
#include <peal/comm/group/process_group.h>
#include <peal/nn/local_state.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace peal::nn {

class ShardedState {
 public:
  // Collective: the whole, on that rank, or on all where none is given; others get nothing.
  using Gather = std::function<NamedTensors(std::optional<int> to)>;
  using Load = std::function<void(const NamedTensors& state)>;
  ShardedState(comm::ProcessGroup group, std::string what, Gather gather, Load load,
               LocalState local);

  // Collective: rank `to` gets the whole as it is now. Error for a rank that is none.
  void consolidate_state_dict(int to = 0);
  // That, once: its memory goes along. Error where there is none, but in a group of one.
  NamedTensors state_dict() const;
  // A whole one, the same on all ranks. Collective.
  void load_state_dict(const NamedTensors& state);
  // This rank's part.
  LocalState local_state() const { return local_; }

 private:
  comm::ProcessGroup group_;
  std::string what_;
  Gather gather_;
  Load load_;
  LocalState local_;
  std::shared_ptr<std::optional<NamedTensors>> there_;  // of all copies
};

}  // namespace peal::nn
