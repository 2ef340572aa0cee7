// SPDX-License-Identifier: Apache-2.0
// Members of a wrapped model: the parameters that were there, and trainable, when it was wrapped,
// and its buffers, where they are made equal. One that joins, takes another's place or is thawed
// later would be each rank's own; check() notices, and tells all ranks. Thread safety: as of
// Module.
#pragma once

#include <peal/comm/group/process_group.h>
#include <peal/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace peal::nn {

class Members {
 public:
  // `ignored`: names of those that may be each rank's own.
  Members(const Module& module, comm::ProcessGroup group, bool buffers,
          const std::vector<std::string>& ignored = {});
  // Costs a look at each tensor. Error on all ranks, by name, where one is not averaged or made
  // equal.
  void check();

 private:
  Module module_;
  comm::ProcessGroup group_;
  // Whether it was trainable; the tensor keeps its place from another's.
  std::unordered_map<const TensorBody*, std::pair<bool, Tensor>> known_;
  std::unordered_map<const TensorBody*, Tensor> buffers_;
  bool buffers_too_;
  std::uint64_t seen_;
};

}  // namespace peal::nn
