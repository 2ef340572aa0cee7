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
    used.push_back(old != parameters_.end() && used_[place]);
    tensors.push_back(tensor);
  }
  parameters_ = std::move(tensors);
  used_ = std::move(used);
  anywhere_.assign(parameters_.size(), true);
  goes_on_ = false;
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

bool Unused::agree(std::uint64_t tag, bool goes_on) {
  std::vector<bool> mine = used_;
  for (std::size_t i = 0; goes_on_ && i < mine.size(); ++i) mine[i] = mine[i] || anywhere_[i];
  mine.push_back(goes_on);
  anywhere_ = any_rank(group_, mine, {"which parameters were used", tag});
  goes_on_ = anywhere_.back();
  anywhere_.pop_back();
  return goes_on_;
}

std::size_t Unused::surprise() const {
  for (std::size_t i = 0; i < used_.size(); ++i) {
    if (used_[i] && !anywhere_[i]) return i;
  }
  return used_.size();
}

std::vector<std::size_t> Unused::settle() {
  std::vector<std::size_t> taken_back;
  for (const auto& [parameter, before] : stood_in_) {
    if (anywhere_[parameter]) continue;
    const Tensor grad = parameters_[parameter].grad();  // none where it is another rank's
    if (before.defined() && grad.defined()) {
      grad.copy_(before);
    } else {
      parameters_[parameter].grad_slot().clear();
    }
    taken_back.push_back(parameter);
  }
  stood_in_.clear();
  std::fill(used_.begin(), used_.end(), false);
  return taken_back;
}

}  // namespace peal::nn
