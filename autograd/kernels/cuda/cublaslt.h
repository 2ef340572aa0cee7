// SPDX-License-Identifier: Apache-2.0
// Products of row-major matrices by cuBLASLt. Sums are f32 for f16 and bf16, and partial sums are
// not rounded to these either; f32 is multiplied as TF32 only where the context allows it
// (Context::allow_tf32). Which algorithm is asked once for a geometry. Workspace, of at most 32
// MiB, comes from the device's allocator for each product, ordered on the current stream as the
// product is. Thread safety: as of the tensors.
#pragma once

#include <peal/autograd/core/device.h>
#include <peal/autograd/core/dtype.h>
#include <peal/autograd/kernels/cuda/column_major.h>

#include <cstdint>

namespace peal::cuda {

struct ProductTypes {
  DType operands, out;  // out: the same, or f32 for operands of low precision
};

// What becomes of a product with its bias before it is stored: gelu by tanh, the only form that
// cuBLASLt has; or it is multiplied by gelu's slope, as its gradient is.
enum class Gelu : std::uint8_t { none, made, slope };

struct ProductData {
  void* out;
  const void *a, *b;
  // Only for a batch of one, of out's type, and not both.
  const void* bias = nullptr;  // [n], added to every row
  // [m], becomes the sums of a's rows (of its transpose, by the flag). Without gelu.
  void* sums = nullptr;
  Gelu gelu = Gelu::none;
  void* gelu_input =
      nullptr;  // as out: written where gelu is made, and may be null then; else read
};

// f32, f64, f16, bf16
bool has_product(DType dtype);

// out = alpha a b, or out += alpha a b. False where cuBLASLt cannot add this bias, give these sums
// or do gelu: then nothing was done. Any other refusal is an Error with the geometry.
// REQUIRES: k > 0; the layouts do not overlap; bias, sums and gelu only without `add`.
[[nodiscard]] bool multiply(const RowProduct& o, ProductTypes types, Device device,
                            const ProductData& data, double alpha = 1, bool add = false);

}  // namespace peal::cuda
