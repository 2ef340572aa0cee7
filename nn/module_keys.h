// SPDX-License-Identifier: Apache-2.0
// Whether what was saved fits a module, judged by names, shapes and types alone, before any of it
// is read or written. Thread safety: a pure function.
#pragma once

#include <peal/autograd/core/safetensors_file.h>
#include <peal/nn/module.h>

#include <vector>

namespace peal::nn {

// Error that names all differences, as Module::load_state_dict() says. A name that lacks is none
// where the module has that tensor by another one, too, which is there.
IncompatibleKeys check_keys(const Module& module, const std::vector<SavedTensor>& saved,
                            bool strict);

}  // namespace peal::nn
