// SPDX-License-Identifier: Apache-2.0
// The hooks of one module, by when they run (nn/module.h). Thread safety: as of the module.
#pragma once

#include <peal/autograd/core/hook_list.h>
#include <peal/nn/module.h>

#include <cstdint>

namespace peal::nn {

struct ModuleHooks {
  HookList<Module::ForwardPreHook> before_forward;
  HookList<Module::ForwardHook> after_forward;
  HookList<Module::BackwardPreHook> before_backward;
  HookList<Module::BackwardHook> after_backward;
  std::uint64_t next = 1;
  bool computes_parameters = false;  // one of before_forward does

  bool in_backward() const { return !before_backward.empty() || !after_backward.empty(); }
  bool empty() const { return before_forward.empty() && after_forward.empty() && !in_backward(); }
};

}  // namespace peal::nn
