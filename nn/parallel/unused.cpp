// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/grad_slot.h>
#include <peal/nn/parallel/any_rank.h>
#include <peal/nn/parallel/unused.h>

#include <algorithm>
#include <utility>

namespace peal::nn {

Unused::Unused(const NamedTensors& parameters, comm::ProcessGroup group)
    : group_(std::move(group)),
      used_(parameters.size(), false),
      anywhere_(parameters.size(), true) {
  for (const auto& [name, tensor] : parameters) parameters_.push_back(tensor);
}

void Unused::exchange(const NamedTensors& parameters) {
  std::vector<Tensor> tensors;
  std::vector<bool> used;
  for (const auto& [name, tensor] : parameters) {
    const auto old =
        std::find_if(parameters_.begin(), parameters_.end(),
                     [&, &tensor = tensor](const Tensor& t) { return t.same_as(tensor); });
    const auto place = static_cast<std::size_t>(old - parameters_.begin());
    used.push_back(old != parameters_.end() ? used_[place] : tensor.grad().defined());
    tensors.push_back(tensor);
  }
  parameters_ = std::move(tensors);
  used_ = std::move(used);
  anywhere_.assign(parameters_.size(), true);
  stood_in_.clear();
}

void Unused::stand_in(std::size_t parameter, DType dtype) {
  const Tensor& tensor = parameters_[parameter];
  const Tensor before = tensor.grad();
  stood_in_.push_back({parameter, before.defined() ? before.clone() : Tensor()});
  if (!before.defined()) {
    used_[parameter] = false;  // zero_grad() gave up what an earlier backward may have used it for
    tensor.grad_slot().accumulate(Tensor::zeros(tensor.shape(), dtype, tensor.device()));
  }
}

void Unused::agree(std::uint64_t tag) {
  anywhere_ = any_rank(group_, used_, {"which parameters were used", tag});
}

std::size_t Unused::surprise() const {
  for (std::size_t i = 0; i < used_.size(); ++i) {
    if (used_[i] && !anywhere_[i]) return i;
  }
  return used_.size();
}

void Unused::settle() {
  for (const auto& [parameter, before] : stood_in_) {
    if (anywhere_[parameter]) continue;
    if (before.defined()) {
      parameters_[parameter].grad().copy_(before);
    } else {
      parameters_[parameter].grad_slot().clear();
    }
  }
  stood_in_.clear();
  std::fill(used_.begin(), used_.end(), false);
}

}  // namespace peal::nn
