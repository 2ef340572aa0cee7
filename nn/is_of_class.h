// SPDX-License-Identifier: Apache-2.0
// A module's class by its name, for who goes by classes (wrap_by_type(),
// apply_activation_checkpointing()). Thread safety: a pure function.
#pragma once

#include <string_view>

namespace peal::nn {

// "peal::nn::GptBlock" is of the class "peal::nn::GptBlock", "nn::GptBlock" and "GptBlock".
inline bool is_of_class(std::string_view class_name, std::string_view wanted) {
  if (!class_name.ends_with(wanted)) return false;
  class_name.remove_suffix(wanted.size());
  return class_name.empty() || class_name.ends_with("::");
}

}  // namespace peal::nn
