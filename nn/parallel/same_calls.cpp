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
  constexpr std::string_view of_buckets =
      ". Or a parameter may have got no gradient on some rank, whose bucket then comes later "
      "there: "
      "find_unused_parameters takes such steps. Or one rank uses a parameter, a tied one perhaps, "
      "before the layer, and another only behind it: use it before the layer on all of them";
  const bool differ = has("all ranks must make the same calls") && has(synchronised_layer);
  if (!differ || has(advice)) return std::string(message);
  return concat(message, advice, has(", backward") && has("bucket ") ? of_buckets : "");
}

}  // namespace peal::nn
