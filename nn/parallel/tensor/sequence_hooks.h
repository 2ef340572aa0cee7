// SPDX-License-Identifier: Apache-2.0
// Sequence parallelism by hooks: what tensor_parallel.h does to modules that stay in their places.
// `path` is the module's, for errors and traces. Thread safety: as of Module.
#pragma once

#include <peal/comm/group/process_group.h>
#include <peal/nn/module.h>

#include <string>

namespace peal::nn {

// The gradients of the module's own parameters, each of a part of the sequence, add up over ranks.
void add_up_gradients(Module& module, const comm::ProcessGroup& group, const std::string& path);
// Its output, the same on all ranks, is cut along that dimension.
void cut_output(Module& module, const comm::ProcessGroup& group, int dim, const std::string& path);

}  // namespace peal::nn
