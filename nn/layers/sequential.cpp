// SPDX-License-Identifier: Apache-2.0
#include <peal/nn/layers/sequential.h>

namespace peal::nn {

void Sequential::push_back(Module module) { add(std::to_string(child_count()), std::move(module)); }

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  for (std::size_t i = 0; i < child_count(); ++i) y = child_at(i)(y);
  return y;
}

}  // namespace peal::nn
