// SPDX-License-Identifier: Apache-2.0
#include <peal/nn/parallel/same_calls.h>

namespace peal::nn {

std::string advised(std::string_view message) {
  constexpr std::string_view advice =
      ". In each step all ranks call a SyncBatchNorm equally often: where a rank has nothing for "
      "it, "
      "with a batch without samples ([0, C, ...]); where a model chooses among its parts, as "
      "find_unused_parameters allows, take BatchNorm in those, or choose alike on all ranks";
  const auto has = [&](std::string_view text) { return message.find(text) != message.npos; };
  const bool differ = has("all ranks must make the same calls") && has(synchronised_layer);
  return differ && !has(advice) ? concat(message, advice) : std::string(message);
}

}  // namespace peal::nn
