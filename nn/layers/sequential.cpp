// SPDX-License-Identifier: Apache-2.0
#include <peal/nn/layers/sequential.h>

namespace peal::nn {

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  for (std::size_t i = 0; i < child_count(); ++i) y = child_at(i)(y);
  return y;
}

}  // namespace peal::nn
