// SPDX-License-Identifier: Apache-2.0
// Replica check: a digest of parameters and buffers, and of what else is to be the same everywhere
// (an optimizer's state), compared between ranks every so many steps, so
// that replicas that have come apart (a write on one rank, a flipped bit, an optimizer with another
// rate) are an Error that names the first tensor, the ranks and the step, and not a loss that is
// worse than it could be. Thread safety: the thread that runs backward.
#pragma once

#include <peal/autograd/core/safetensors.h>
#include <peal/comm/group/process_group.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace peal::nn {

class ReplicaCheck {
 public:
  // `every`: in steps; 0 for never.
  ReplicaCheck(NamedTensors tensors, comm::ProcessGroup group, std::int64_t every)
      : tensors_(std::move(tensors)), group_(std::move(group)), every_(every) {}

  // Of this object's tensors, too, as they then are, by "name.key".
  struct Other {
    std::string name;
    std::function<NamedTensors()> state;
  };
  void also(std::vector<Other> others) { others_ = std::move(others); }

  // After each step. Collective, in each of the steps that count. Error on all ranks.
  void count_step(std::uint64_t step);

 private:
  NamedTensors tensors_;
  std::vector<Other> others_;
  comm::ProcessGroup group_;
  std::int64_t every_;
};

}  // namespace peal::nn
