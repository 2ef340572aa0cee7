// SPDX-License-Identifier: Apache-2.0
// Normalisation by channel of [N, C, 1], whose planes are columns of a matrix (columns.h), in f32
// and f64. Arguments as in families.def. Thread safety: as of the tensors.
#pragma once

#include <peal/autograd/core/tensor.h>

namespace peal::cpu {

bool column_statistics(const Tensor& mean, const Tensor& variance, const Tensor& x);
bool batch_norm_columns(const Tensor& y, const Tensor& x, const Tensor& mean,
                        const Tensor& variance, const Tensor& weight, const Tensor& bias,
                        double eps);
bool batch_norm_columns_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                                 const Tensor& dy, const Tensor& x, const Tensor& mean,
                                 const Tensor& variance, const Tensor& weight, double eps,
                                 bool own);
bool merged_columns_backward(const Tensor& dx, const Tensor& dy, const Tensor& x,
                             const Tensor& merged, const Tensor& sums, const Tensor& weight,
                             double eps);

}  // namespace peal::cpu
