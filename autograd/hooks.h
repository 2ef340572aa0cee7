// SPDX-License-Identifier: Apache-2.0
// Tensor hooks: functions that see, and may replace, the gradient of an inner tensor on its way
// back (Tensor::register_hook), and the slots of those that keep theirs (Tensor::retain_grad). They
// hang on the node that made the tensor, output by output; those of a leaf hang on its slot
// (grad_slot.h). Thread safety: belongs to the thread that runs backward.
#pragma once

#include <peal/autograd/core/hook_list.h>
#include <peal/autograd/core/tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string_view>

namespace peal {

using GradientHooks = HookList<Tensor::GradientHook>;

// A number that no hook of the process had before: of those of a tensor, larger than the last's.
std::uint64_t new_hook_id();

// What the hooks make of a gradient. Error where one gives another shape, type or device.
Tensor run_hooks(GradientHooks& hooks, std::string_view op, Tensor grad);

struct NodeHooks {
  struct Output {
    GradientHooks hooks;
    std::shared_ptr<GradSlot> retained;
  };
  std::map<int, Output> outputs;

  // Over the gradients of the node's outputs, all of which have come. `retain`: for those that keep
  // theirs, too.
  void run(std::string_view op, Tensors& grads, bool retain);
};

// For who gives a body another node (ops/in_place.h): its gradient is kept there from now on.
void move_retained(const std::shared_ptr<Node>& from, int output, const Tensor& to);

}  // namespace peal
