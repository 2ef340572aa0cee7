// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/nn/optim/adafactor.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace peal::nn {
namespace {

namespace adafactor_at {  // of settings
enum : std::size_t { lr, beta2_decay, eps1, eps2, d, weight_decay };
}

void check_decay(double beta2_decay) {
  PEAL_CHECK(beta2_decay <= 0, "Adafactor: beta2_decay: expected at most 0, got ", beta2_decay);
}

Tensor root_mean_square(const Tensor& x) { return sqrt(mean(x * x)); }

// average += share (x - average)
void lean(const Tensor& average, const Tensor& x, double share) {
  mul_(average, 1 - share);
  add_(average, x, share);
}

}  // namespace

Adafactor::Names Adafactor::names() {
  constexpr double unbounded = std::numeric_limits<double>::infinity();
  return {"Adafactor",
          {{"lr"}, {"beta2_decay", -unbounded}, {"eps1"}, {"eps2"}, {"d", 1}, {"weight_decay"}},
          {"maximize"},
          {},
          {"row_var", "col_var", "variance"},
          {},
          true};
}
std::vector<double> Adafactor::settings_of(const AdafactorOptions& o) {
  check_decay(o.beta2_decay);
  return {o.lr, o.beta2_decay, o.eps1, o.eps2, o.d, o.weight_decay, o.maximize ? 1.0 : 0};
}
void Adafactor::check(std::span<const double> settings) const {
  Optimizer::check(settings);
  check_decay(settings[adafactor_at::beta2_decay]);
}
bool Adafactor::wants_state(std::size_t k, const Shape& parameter, std::span<const double>) const {
  return (k == 2) == (parameter.dim() < 2);
}
Shape Adafactor::state_shape(std::size_t k, const Shape& parameter) const {
  Shape shape = parameter;
  if (k < 2 && parameter.dim() >= 2) shape[k == 0 ? -1 : -2] = 1;
  return shape;
}

void Adafactor::update_one(const Stepped& one, const Tensor& g, bool, const Now& now) const {
  const std::span<const double> s = now.settings;
  const Tensor& p = one.param;
  if (p.numel() == 0) return;
  const double epsilon = p.dtype() == DType::f64 ? std::numeric_limits<double>::epsilon()
                                                 : std::numeric_limits<float>::epsilon();
  const double eps1 = s[adafactor_at::eps1] == 0 ? epsilon : s[adafactor_at::eps1];
  const auto t = static_cast<double>(now.step);
  const double share = std::pow(t, s[adafactor_at::beta2_decay]);
  const Tensor size = clamp(root_mean_square(p), s[adafactor_at::eps2]);
  const double decay = s[adafactor_at::lr] * s[adafactor_at::weight_decay];
  if (decay != 0) mul_(p, 1 - decay);
  const Tensor squares = g * g;
  Tensor variance = one.first;
  if (p.dim() >= 2) {
    lean(one.first, mean(squares, {-1}, true), share);
    lean(one.second, mean(squares, {-2}, true), share);
    variance = one.first * one.second / clamp(mean(one.first, {-2}, true), eps1);
  } else {
    lean(one.first, squares, share);
  }
  const Tensor update = g / sqrt(clamp(variance, eps1 * eps1));
  const Tensor excess = clamp(root_mean_square(update) / s[adafactor_at::d], 1.0);
  add_(p, update * (size / excess), -std::min(s[adafactor_at::lr], 1 / std::sqrt(t)));
}

}  // namespace peal::nn
