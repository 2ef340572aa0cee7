// SPDX-License-Identifier: Apache-2.0
// How far elements lie apart, and how large they are together: variances, standard deviations and
// norms, over all elements or over some dimensions, which are kept with size 1 where keepdim. Low
// precision is computed in f32. Thread safety: as of the operands.
#pragma once

#include <peal/autograd/core/dims.h>
#include <peal/autograd/core/tensor.h>

#include <utility>

namespace peal {

// The sum of (x - mean)^2 over the number of elements less the correction (1, or true, is that of
// a sample: PyTorch's "unbiased"); NaN where there are no more. The gradient of a standard
// deviation that is 0 is 0.
Tensor var(const Tensor& x, bool unbiased = true);
Tensor var(const Tensor& x, const Dims& dims, int correction = 1, bool keepdim = false);
inline Tensor var(const Tensor& x, int dim, int correction = 1, bool keepdim = false) {
  return var(x, Dims(dim), correction, keepdim);  // without it, 1 would be `unbiased`
}
Tensor std(const Tensor& x, bool unbiased = true);
Tensor std(const Tensor& x, const Dims& dims, int correction = 1, bool keepdim = false);
inline Tensor std(const Tensor& x, int dim, int correction = 1, bool keepdim = false) {
  return std(x, Dims(dim), correction, keepdim);  // without it, 1 would be `unbiased`
}
// With the mean, second.
std::pair<Tensor, Tensor> var_mean(const Tensor& x, const Dims& dims, int correction = 1,
                                   bool keepdim = false);
std::pair<Tensor, Tensor> std_mean(const Tensor& x, const Dims& dims, int correction = 1,
                                   bool keepdim = false);

// (sum of |x|^p)^(1 / p), for infinite p the largest |x|, for -infinite p the smallest, for 0 how
// many are not 0. The gradient where all are 0 is 0.
Tensor norm(const Tensor& x, double p = 2);
Tensor norm(const Tensor& x, double p, const Dims& dims, bool keepdim = false);
// PyTorch's torch.linalg.vector_norm.
inline Tensor vector_norm(const Tensor& x, double p, const Dims& dims, bool keepdim = false) {
  return norm(x, p, dims, keepdim);
}

}  // namespace peal
