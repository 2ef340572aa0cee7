// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/anomaly.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/shape.h>

namespace peal {

void check_anomaly(std::string_view op, const std::string& where, std::size_t input,
                   const Tensor& grad) {
  if (!is_floating(grad.dtype()) || grad.numel() == 0) return;
  const NoGrad guard;
  const auto count = sum(cast(ne(grad, grad), DType::i64)).item<std::int64_t>();
  PEAL_CHECK(count == 0, "backward: '", op, "'", where.empty() ? "" : " (made in " + where + ")",
             " gave ", count == 1 ? "a NaN" : concat(count, " NaNs"),
             " in the gradient of its input ", input, ", ", grad.dtype(), " ", grad.shape(),
             where.empty() ? "; DetectAnomaly around the forward, too, tells its module" : "");
}

}  // namespace peal
