// SPDX-License-Identifier: Apache-2.0
// Weight normalisation and spectral normalisation of a layer's weight:
//
//   nn::Linear fc = add("fc", nn::weight_norm(nn::Linear(20, 40)));
//   nn::Conv2d conv = add("conv", nn::spectral_norm(nn::Conv2d(3, 8, 3)));
//
// Names, keys and formulas are those of torch.nn.utils.weight_norm and spectral_norm: weight_g and
// weight_v; weight_orig, weight_u and weight_v. All PyTorches have these, and what models were
// published with; torch.nn.utils.parametrizations.weight_norm, which came later and has other keys,
// loads them too. Before a parallel wrapper, or an optimizer, has the layer; a weight of which this
// rank has a piece alone is an Error. Thread safety: as of Module.
#pragma once

#include <peal/nn/module.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace peal::nn {

void apply_weight_norm(Module& module, std::string_view name, std::optional<int> dim);

// weight = g v / |v|, norms over all dimensions but `dim`; of all of v where there is none,
// or it is -1 as PyTorch has it (Salimans and Kingma, "Weight normalization", 2016). Error where
// the module itself has no such parameter.
template <std::derived_from<Module> M>
M weight_norm(M module, std::string_view name = "weight", std::optional<int> dim = 0) {
  apply_weight_norm(module, name, dim);
  return module;
}

struct SpectralNormOptions {
  std::int64_t n_power_iterations = 1;
  double eps = 1e-12;
  // Which dimension is that of outputs: 0 where it is not given, or 1 for a ConvTranspose.
  std::optional<int> dim = {};
};
void apply_spectral_norm(Module& module, std::string_view name, const SpectralNormOptions& options);

// weight = orig / s, of which s is the largest singular value, as power iterations know it: some in
// each forward while training (Miyato et al., "Spectral normalization for generative adversarial
// networks", ICLR 2018), but not where backward computes it anew (autograd/checkpoint.h).
template <std::derived_from<Module> M>
M spectral_norm(M module, std::string_view name = "weight",
                const SpectralNormOptions& options = {}) {
  apply_spectral_norm(module, name, options);
  return module;
}

}  // namespace peal::nn
