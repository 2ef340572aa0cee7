// SPDX-License-Identifier: Apache-2.0
// Reductions of a loss, for losses that are made of ops. Thread safety: pure functions.
#pragma once

#include <peal/autograd/core/op_name.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/loss.h>
#include <peal/autograd/ops/reduce.h>

#include <string_view>

namespace peal {

// Error where they are not of one floating type and shape, and on one device.
inline void check_pair(std::string_view op, const Tensor& x, const Tensor& target) {
  const OpName name(op);
  check_alike(op, x, target);
  check_floating(op, x);
  PEAL_CHECK(x.shape() == target.shape(), op, ": expected a target of shape ", x.shape(), ", got ",
             target.shape());
}

// The loss of each element or row, reduced, in `dtype`.
inline Tensor reduced(std::string_view op, const Tensor& each, Reduction reduction, DType dtype) {
  const OpName name(op);
  switch (reduction) {
    case Reduction::none:
      return cast(each, dtype);
    case Reduction::sum:
      return cast(sum(each), dtype);
    case Reduction::mean:
      PEAL_CHECK(each.numel() > 0, op, ": the mean of no elements");
      return cast(mean(each), dtype);
    case Reduction::batchmean:
      PEAL_CHECK(each.dim() > 0 && each.size(0) > 0, op, ": the mean of no rows");
      return cast(sum(each) / static_cast<double>(each.size(0)), dtype);
  }
  return {};
}

}  // namespace peal
