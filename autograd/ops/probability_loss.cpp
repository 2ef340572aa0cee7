// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/ops/broadcast.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/probability_loss.h>
#include <peal/autograd/ops/reduced.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/tape.h>

#include <cmath>
#include <limits>
#include <numbers>

namespace peal {
namespace {

// On a CPU, where the host has the elements at hand.
void check_within(std::string_view op, const char* what, const Tensor& x, double low, double high,
                  const char* expected) {
  if (x.device().type != DeviceType::cpu) return;
  visit(x.dtype(), [&]<class T>() {
    const T* const at = x.data<T>();
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const auto value = static_cast<double>(at[i]);
      PEAL_CHECK(!(value < low) && !(value > high), op, ": ", what, " ", i, " is ", value,
                 ", expected ", expected);
    }
  });
}

// max(log x, -100); its slope does not see the bound.
Tensor bounded_log(const Tensor& x) { return clamp(log(x), -100); }

// The slope of -t log x - (1 - t) log(1 - x), whose divisor is bounded too.
Tensor slope_of_probability(const Tensor& x, const Tensor& target) {
  return (x - target) / clamp((1.0 - x) * x, 1e-12);
}

}  // namespace

Tensor binary_cross_entropy(const Tensor& x, const Tensor& target, const BCEOptions& options) {
  constexpr std::string_view op = "binary_cross_entropy";
  if (widens(x, target)) {
    return binary_cross_entropy(widened(x), widened(target),
                                {widened(options.weight), options.reduction});
  }
  const OpName name(op);
  check_pair(op, x, target);
  check_within(op, "element", x, 0, 1, "a probability in [0, 1]");
  check_within(op, "target", target, 0, 1, "a probability in [0, 1]");
  PEAL_CHECK(options.reduction != Reduction::batchmean, op, ": batchmean is kl_div's alone");
  const DType within = computed_in(x.dtype());
  const Tensor p = cast(x, within), t = cast(target, within);
  Tensor each;
  {
    const NoGrad guard;
    each = -(t * bounded_log(p) + (1.0 - t) * bounded_log(1.0 - p));
  }
  each = record(op, each, {p, t}, [p = save(p), t = save(t)](const Tensor& g, Needs needs) {
    Tensors grads(2);
    if (needs[0]) grads[0] = g * slope_of_probability(p(), t());
    if (needs[1]) grads[1] = g * (bounded_log(1.0 - p()) - bounded_log(p()));
    return grads;
  });
  if (options.weight.defined()) {
    check_alike(op, x, options.weight);
    PEAL_CHECK(broadcast(op, x.shape(), options.weight.shape()) == x.shape(), op,
               ": expected a weight that stretches to ", x.shape(), ", got shape ",
               options.weight.shape());
    each = each * cast(options.weight, within);
  }
  return reduced(op, each, options.reduction, x.dtype());
}

Tensor kl_div(const Tensor& x, const Tensor& target, const KLDivOptions& options) {
  if (widens(x, target)) return kl_div(widened(x), widened(target), options);
  constexpr std::string_view op = "kl_div";
  const OpName name(op);
  check_pair(op, x, target);
  const DType within = computed_in(x.dtype());
  const Tensor logs = cast(x, within), t = cast(target, within);
  if (options.log_target) return reduced(op, exp(t) * (t - logs), options.reduction, x.dtype());
  const auto number = [&](double value) { return full({}, value, within, x.device()); };
  const Tensor counts = ne(t, number(0));  // what is below 0, and no probability, becomes NaN
  const Tensor entropy = where(counts, t * log(where(counts, t, number(1))), number(0));
  return reduced(op, entropy - t * logs, options.reduction, x.dtype());
}

Tensor poisson_nll_loss(const Tensor& x, const Tensor& target, const PoissonNLLOptions& options) {
  if (widens(x, target)) return poisson_nll_loss(widened(x), widened(target), options);
  constexpr std::string_view op = "poisson_nll_loss";
  const OpName name(op);
  check_pair(op, x, target);
  PEAL_CHECK(options.reduction != Reduction::batchmean, op, ": batchmean is kl_div's alone");
  const DType within = computed_in(x.dtype());
  const Tensor rate = cast(x, within), t = cast(target, within);
  Tensor each = options.log_input ? exp(rate) - t * rate : rate - t * log(rate + options.eps);
  if (options.full) {
    const auto number = [&](double value) { return full({}, value, within, x.device()); };
    const Tensor counts = gt(t, number(1)), n = where(counts, t, number(1));
    each = each + where(counts, n * log(n) - n + log(n * (2 * std::numbers::pi)) * 0.5, number(0));
  }
  return reduced(op, each, options.reduction, x.dtype());
}

Tensor gaussian_nll_loss(const Tensor& x, const Tensor& target, const Tensor& variance,
                         const GaussianNLLOptions& options) {
  constexpr std::string_view op = "gaussian_nll_loss";
  if (widens(x, target, variance)) {
    return gaussian_nll_loss(widened(x), widened(target), widened(variance), options);
  }
  const OpName name(op);
  check_pair(op, x, target);
  check_alike(op, x, variance);
  PEAL_CHECK(options.reduction != Reduction::batchmean, op, ": batchmean is kl_div's alone");
  Tensor each_variance = variance;
  int single = 0, others = std::abs(x.dim() - variance.dim());
  for (int i = 0; others == 0 && i < x.dim(); ++i) {
    if (variance.size(i) != x.size(i)) ++(variance.size(i) == 1 ? single : others);
  }
  if (others != 0 && variance.dim() + 1 == x.dim()) {
    others = 0;
    for (int i = 0; i < variance.dim(); ++i) others += variance.size(i) != x.size(i);
    if (others == 0) each_variance = unsqueeze(variance, -1);
  }
  PEAL_CHECK(others == 0 && single <= 1, op, ": expected a variance of shape ", x.shape(),
             ", or with 1 in one place, got ", variance.shape());
  check_within(op, "variance", variance, 0, std::numeric_limits<double>::infinity(), "at least 0");
  const DType within = computed_in(x.dtype());
  const Tensor fixed = cast(each_variance.detach(), within);
  const Tensor v = cast(each_variance, within) + (clamp(fixed, options.eps) - fixed);
  const Tensor away = cast(x, within) - cast(target, within);
  Tensor each = (log(v) + away * away / v) * 0.5;
  if (options.full) each = each + 0.5 * std::log(2 * std::numbers::pi);
  return reduced(op, each, options.reduction, x.dtype());
}

}  // namespace peal
