// SPDX-License-Identifier: Apache-2.0
// Members of a wrapped model: which parameters it has, which of them are trained, and its buffers.
// What the wrapper averages and makes equal is of a list of them; where the model is another since
// (a parameter was frozen or thawed, one has joined, or a part took another's place), the wrapper
// sees that here, and the ranks agree on another list. Thread safety: as of Module.
#pragma once

#include <peal/autograd/core/safetensors.h>
#include <peal/nn/module.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace peal::nn {

struct MemberList {
  NamedTensors parameters, buffers;
  std::vector<bool> trained;  // by parameter
  std::vector<std::pair<std::string, std::string>>
      tied;  // another name, and the first of its tensor
};

// What the later one has and the earlier has not, or otherwise: "fc1.weight is trained now, extra
// has joined". Empty where they are the same tensors by the same names in the same order.
std::string difference(const MemberList& before, const MemberList& after);

class Members {
 public:
  // `ignored`: names of those that are none of the wrapper's.
  Members(Module module, std::vector<std::string> ignored);

  const MemberList& list() const { return list_; }
  // Whether the model is another than the list. Costs a look at each tensor.
  bool changed();
  // As the model is now.
  MemberList now() const;
  void take(MemberList list);
  // Parameters that are trained now, and were not in the list, or frozen there.
  std::vector<Tensor> newcomers() const;

 private:
  Module module_;
  std::vector<std::string> ignored_;
  std::uint64_t seen_;
  bool changed_ = false;
  MemberList list_;
};

}  // namespace peal::nn
