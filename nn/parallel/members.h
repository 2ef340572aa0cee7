// SPDX-License-Identifier: Apache-2.0
// Members of a wrapped model: the parameters that were there, and trainable, when it was wrapped.
// One that joins, takes another's place or is thawed later would be trained by each rank for
// itself; check() notices, and tells all ranks. Thread safety: as of Module.
#pragma once

#include <peal/comm/group/process_group.h>
#include <peal/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

namespace peal::nn {

class Members {
 public:
  Members(const Module& module, std::shared_ptr<comm::ProcessGroup> group);
  // Costs a look at each parameter. Error on all ranks, by name, where one is not averaged.
  void check();

 private:
  Module module_;
  std::shared_ptr<comm::ProcessGroup> group_;
  // Whether it was trainable; the tensor keeps its place from another's.
  std::unordered_map<const TensorBody*, std::pair<bool, Tensor>> known_;
  std::uint64_t seen_;
};

}  // namespace peal::nn
