// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cpu/convolution.h>
#include <peal/autograd/kernels/cpu/table.h>

namespace peal::cpu {

// In low precision only what oneDNN has code of its own for.
bool conv2d_by_onednn(const Conv2dGeometry& o, const Tensor& x) {
  const bool plain = o.groups == 1 && o.dilation == std::array<std::int64_t, 2>{1, 1};
  return x.numel() > 0 && (x.dtype() == DType::f32 || (x.dtype() != DType::f64 && plain));
}

bool conv2d(const Conv2dGeometry& geometry, const Tensor& y, const Tensor& x, const Tensor& weight,
            const Tensor& bias) {
  if (x.dtype() != DType::f32 && x.dtype() != DType::f64) return false;
  if (y.numel() == 0) return true;
  if (conv2d_by_onednn(geometry, x)) {
    conv2d_onednn(geometry, y, x, weight, bias);
  } else {
    conv2d_columns(geometry, y, x, weight, bias);
  }
  return true;
}

bool conv2d_backward(const Conv2dGeometry& geometry, const Tensor& dx, const Tensor& dweight,
                     const Tensor& dbias, const Tensor& dy, const Tensor& x, const Tensor& weight) {
  if (x.dtype() != DType::f32 && x.dtype() != DType::f64) return false;
  if (conv2d_by_onednn(geometry, x) && dy.numel() > 0) {
    conv2d_onednn_backward(geometry, dx, dweight, dbias, dy, x, weight);
  } else {
    conv2d_columns_backward(geometry, dx, dweight, dbias, dy, x, weight);
  }
  return true;
}

}  // namespace peal::cpu
