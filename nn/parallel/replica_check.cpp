// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/graph.h>
#include <peal/comm/group/agree.h>
#include <peal/nn/parallel/make_equal.h>
#include <peal/nn/parallel/replica_check.h>

#include <fmt/core.h>

#include <string>

namespace peal::nn {

void ReplicaCheck::count_step(std::uint64_t step) {
  if (every_ == 0 || step % static_cast<std::uint64_t>(every_) != 0) return;
  if (group_.world() == 1 || Graph::capturing() != nullptr) return;
  std::string lines;
  const auto add = [&](const std::string& prefix, const NamedTensors& tensors) {
    for (const auto& [name, tensor] : tensors) {
      const auto words = digest_of(tensor);
      lines += fmt::format("{}{} {:016x}{:016x}\n", prefix, name, words[0], words[1]);
    }
  };
  add("", tensors_);
  for (const Other& other : others_) add(other.name + '.', other.state());
  comm::agree(
      group_, concat("[ddp] what replicas have in step ", step), lines,
      "these are digests of values that should be the same bits on all ranks; something has "
      "written them on one rank alone, or its optimizer has other numbers");
}

}  // namespace peal::nn
