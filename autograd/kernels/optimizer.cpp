// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/optimizer.h>
#include <peal/autograd/kernels/table.h>

namespace peal {
namespace {

void check_like(std::string_view op, const Tensor& param, const Tensor& other) {
  PEAL_CHECK(other.shape() == param.shape() && other.dtype() == param.dtype() &&
                 other.device() == param.device(),
             op, ": a parameter ", param.dtype(), " ", param.shape(), " on ", param.device(),
             " came with ", other.dtype(), " ", other.shape(), " on ", other.device());
}

}  // namespace

void sgd_step(const Tensor& param, const Tensor& grad, const Tensor& momentum_buffer,
              const SgdStep& options) {
  TraceSpan span("sgd_step");
  check_like("sgd_step", param, grad);
  PEAL_CHECK(momentum_buffer.defined() == (options.momentum != 0), "sgd_step: momentum ",
             options.momentum, " came ",
             momentum_buffer.defined() ? "with a buffer" : "without a buffer");
  if (momentum_buffer.defined()) check_like("sgd_step", param, momentum_buffer);
  kernels(param.device()).sgd("sgd_step", param, param, grad, momentum_buffer, options);
  param.storage()->bump_version();
  if (momentum_buffer.defined()) momentum_buffer.storage()->bump_version();
}

void adam_step(const Tensor& param, const Tensor& grad, const Tensor& exp_avg,
               const Tensor& exp_avg_sq, const AdamStep& options) {
  TraceSpan span("adam_step");
  check_like("adam_step", param, grad);
  check_like("adam_step", param, exp_avg);
  check_like("adam_step", param, exp_avg_sq);
  PEAL_CHECK(options.step >= 1, "adam_step: steps count from 1, got ", options.step);
  kernels(param.device()).adam("adam_step", param, param, grad, exp_avg, exp_avg_sq, options);
  param.storage()->bump_version();
  exp_avg.storage()->bump_version();
  exp_avg_sq.storage()->bump_version();
}

}  // namespace peal
