// SPDX-License-Identifier: Apache-2.0
// The ways to convolve on the CPU, each for all of a convolution's three products. Undefined
// gradients are not wanted. Thread safety: as of the tensors.
#pragma once

#include <peal/autograd/kernels/table.h>

namespace peal::cpu {

// By unrolled columns and matrix products: f32 and f64, the reference.
void conv2d_columns(const Conv2dGeometry& geometry, const Tensor& y, const Tensor& x,
                    const Tensor& weight, const Tensor& bias);
void conv2d_columns_backward(const Conv2dGeometry& geometry, const Tensor& dx,
                             const Tensor& dweight, const Tensor& dbias, const Tensor& dy,
                             const Tensor& x, const Tensor& weight);

// Whether a convolution that is not in f64 is left to oneDNN.
bool conv2d_by_onednn(const Conv2dGeometry& geometry, const Tensor& x);

// By oneDNN, f32, in the layouts it likes best. x is arranged anew for backward: kept from forward
// on, it would take as much memory as x again, and come from memory as x does.
void conv2d_onednn(const Conv2dGeometry& geometry, const Tensor& y, const Tensor& x,
                   const Tensor& weight, const Tensor& bias);
void conv2d_onednn_backward(const Conv2dGeometry& geometry, const Tensor& dx, const Tensor& dweight,
                            const Tensor& dbias, const Tensor& dy, const Tensor& x,
                            const Tensor& weight);

}  // namespace peal::cpu
