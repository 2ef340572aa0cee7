// SPDX-License-Identifier: Apache-2.0
// mlp: fully connected layers with ReLU between them.
#pragma once

#include <peal/nn/layers/layers.h>

#include <vector>

namespace peal::nn {

// mlp({784, 512, 512, 10}): Flatten, Linear, ReLU, Linear, ReLU, Linear; x [N, ...] -> [N, last].
// REQUIRES: at least two sizes.
inline Sequential mlp(const std::vector<std::int64_t>& sizes) {
  PEAL_CHECK(sizes.size() >= 2, "mlp: at least an input and an output size, got ", sizes.size());
  Sequential layers{Flatten()};
  for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
    if (i > 0) layers.push_back(ReLU());
    layers.push_back(Linear(sizes[i], sizes[i + 1]));
  }
  return layers;
}

}  // namespace peal::nn
