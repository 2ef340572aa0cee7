// SPDX-License-Identifier: Apache-2.0
// Whether what was saved fits a module, judged by names, shapes and types alone, before any of it
// is read or written; and what is told of values that do not fit each other. Thread safety: pure
// functions.
#pragma once

#include <peal/autograd/core/safetensors_file.h>
#include <peal/nn/module.h>

#include <cstddef>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
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

// Of one load, in which the names of a tied tensor are written in the model's order, so that the
// last one's value stays, as in PyTorch. Where another one had another value a warning names both.
class TiedWrites {
 public:
  explicit TiedWrites(std::string_view who) : who_(who) {}
  // own becomes value, in its type and on its device. REQUIRES: they have as many elements.
  void write(const std::string& name, const Tensor& own, const Tensor& value);

 private:
  std::string who_;
  std::map<std::pair<const Storage*, std::int64_t>, std::string> written_;  // by which name last
};

}  // namespace peal::nn
