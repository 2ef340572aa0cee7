// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/permute.h>
#include <peal/nn/models/gpt2_state.h>

#include <string_view>

namespace peal::nn {
namespace {

bool is_linear(std::string_view key) {
  return key.ends_with(".c_attn.weight") || key.ends_with(".c_proj.weight") ||
         key.ends_with(".c_fc.weight");
}

}  // namespace

NamedTensors from_gpt2(const NamedTensors& published) {
  const NoGrad guard;
  NamedTensors state;
  for (const auto& [name, tensor] : published) {
    if (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")) continue;
    const bool whole = name.starts_with("transformer.") || name.starts_with("lm_head.");
    const std::string key = whole ? name : "transformer." + name;
    if (!is_linear(key)) {
      state.emplace_back(key, tensor);
      continue;
    }
    PEAL_CHECK(tensor.dim() == 2, "from_gpt2: ", name, ": expected [in, out], got shape ",
               tensor.shape());
    PEAL_CHECK(!key.ends_with(".c_attn.weight") || tensor.size(1) == 3 * tensor.size(0),
               "from_gpt2: ", name, ": expected [width, 3 width], got shape ", tensor.shape(),
               tensor.size(0) == 3 * tensor.size(1)
                   ? ": that is nn::GPT's own layout, which load_state_dict takes as it is"
                   : "");
    state.emplace_back(key, transpose(tensor, 0, 1));
  }
  return state;
}

NamedTensors to_gpt2(const NamedTensors& state) {
  const NoGrad guard;
  NamedTensors published;
  for (const auto& [name, tensor] : state) {
    published.emplace_back(name, is_linear(name) ? transpose(tensor, 0, 1) : tensor);
  }
  return published;
}

}  // namespace peal::nn
