// SPDX-License-Identifier: Apache-2.0
// Whether what was saved fits a module, judged by names, shapes and types alone, before any of it
// is read or written. Thread safety: a pure function.
#pragma once

#include <peal/autograd/core/safetensors_file.h>
#include <peal/nn/module.h>

#include <cstddef>
#include <limits>
#include <string_view>
#include <vector>

namespace peal::nn {

// Error that names all differences, as Module::load_state_dict() says. A name that lacks is none
// where the module has that tensor by another one, too, which is there.
IncompatibleKeys check_keys(const Module& module, const std::vector<SavedTensor>& saved,
                            bool strict);
// The same of any state of tensors, which may have no bytes; `who` has it. Of differences as many
// are listed, and the rest counted.
IncompatibleKeys compare_keys(std::string_view who, const NamedTensors& own,
                              const std::vector<SavedTensor>& saved, bool strict,
                              std::size_t most_listed = std::numeric_limits<std::size_t>::max());

}  // namespace peal::nn
