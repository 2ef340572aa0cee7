// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/dropout_draw.h>
#include <peal/nn/parallel/tensor/parallel_dropout.h>

namespace peal::nn {

Tensor ParallelDropout::forward(const Tensor& x) {
  if (!training()) return x;
  return dropout_of_part(x, p(), dim_, group_.rank(), group_.world());
}

}  // namespace peal::nn
