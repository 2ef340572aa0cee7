// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/grad_slot.h>
#include <peal/nn/parallel/left_gradients.h>

#include <algorithm>
#include <utility>

namespace peal::nn {

void LeftGradients::watch(const NamedTensors& parameters, const std::vector<bool>& own) {
  std::vector<Watched> before = std::exchange(watched_, std::vector<Watched>(parameters.size()));
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const Tensor& parameter = parameters[p].second;
    if (!own[p]) continue;
    const auto found = std::find_if(before.begin(), before.end(), [&](const Watched& other) {
      return other.parameter.defined() && other.parameter.same_as(parameter);
    });
    if (found != before.end()) {
      watched_[p] = std::exchange(*found, {});
      continue;
    }
    GradSlot& slot = parameter.grad_slot();
    auto left = std::make_shared<bool>(false);
    const std::uint64_t id = new_hook_id();
    // Before what has come is accumulated. The slot has the hook, and so outlives it.
    slot.gradient_hooks().add(id, [left, &slot](const Tensor&) {
      if (!slot.defined()) *left = false;
      return Tensor();
    });
    watched_[p] = {parameter, std::move(left), id};
  }
  for (const Watched& other : before) stop(other);
}

void LeftGradients::stop(const Watched& watched) {
  if (watched.parameter.defined()) watched.parameter.remove_hook(watched.hook);
}

LeftGradients::~LeftGradients() {
  for (const Watched& watched : watched_) stop(watched);
}

void LeftGradients::note() {
  for (const Watched& watched : watched_) {
    if (watched.parameter.defined()) *watched.left = watched.parameter.grad().defined();
  }
}

void LeftGradients::forget(std::size_t parameter) {
  if (watched_[parameter].left) *watched_[parameter].left = false;
}

bool LeftGradients::has(std::size_t parameter) const {
  return watched_[parameter].left && *watched_[parameter].left;
}

}  // namespace peal::nn
