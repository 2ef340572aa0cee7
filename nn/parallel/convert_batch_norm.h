// SPDX-License-Identifier: Apache-2.0
// Puts another batch norm of the same tensors in the place of every one of a model: what
// convert_sync_batchnorm() and convert_deferred_batch_norm() do. Thread safety: as of Module.
#pragma once

#include <peal/nn/layers/norm.h>

#include <functional>
#include <string>
#include <string_view>

namespace peal::nn {

// `made` gets one that there is, and its path. Those that are no BatchNorm1d, 2d or 3d are left
// where `leave` says so, and else an Error, as one with hooks is; `who` is for that. Nothing is
// converted then. One with several places is one in all of them.
Module convert_batch_norm(Module module, std::string_view who,
                          const std::function<bool(Module&)>& leave,
                          const std::function<Module(const BatchNorm&, const std::string&)>& made);

}  // namespace peal::nn
