// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/ops/choose.h>

namespace peal {

Autocast::Autocast(DType dtype, bool enabled) : before_(context().autocast) {
  PEAL_CHECK(is_low_precision(dtype), "Autocast: expected f16 or bf16, got ", dtype);
  context().autocast = enabled ? std::optional(dtype) : std::nullopt;
}

bool would_lower(const Tensor& x) {
  return x.defined() && x.dtype() != *context().autocast &&
         (x.dtype() == DType::f32 || is_low_precision(x.dtype()));
}
bool would_widen(const Tensor& x) { return x.defined() && is_low_precision(x.dtype()); }

Tensor lowered(const Tensor& x) { return would_lower(x) ? cast(x, *context().autocast) : x; }
Tensor widened(const Tensor& x) { return would_widen(x) ? cast(x, DType::f32) : x; }

}  // namespace peal
