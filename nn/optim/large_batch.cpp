// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/nn/optim/large_batch.h>

#include <cmath>

namespace peal::nn {
namespace {

namespace lars_at {  // of settings
enum : std::size_t { lr, momentum, weight_decay, trust_coefficient, eps, nesterov };
}
namespace lamb_at {
enum : std::size_t { lr, beta1, beta2, eps, weight_decay };
}

Tensor euclidean(const Tensor& x) { return sqrt(sum(x * x)); }

// `ratio` where both norms are above 0, else 1; all have no dimensions.
Tensor trusted(const Tensor& p_norm, const Tensor& norm, const Tensor& ratio) {
  return where(logical_and(gt(p_norm, 0.0), gt(norm, 0.0)), ratio, 1.0);
}

// average = beta average + (1 - beta) x
void average_into(const Tensor& average, const Tensor& x, double beta) {
  mul_(average, beta);
  add_(average, x, 1 - beta);
}

}  // namespace

LARS::Names LARS::names() {
  return {"LARS",
          {{"lr"}, {"momentum"}, {"weight_decay"}, {"trust_coefficient"}, {"eps"}},
          {"nesterov", "maximize"},
          {},
          {"momentum_buffer"},
          {},
          true};
}
std::vector<double> LARS::settings_of(const LARSOptions& o) {
  return {o.lr,  o.momentum,           o.weight_decay,      o.trust_coefficient,
          o.eps, o.nesterov ? 1.0 : 0, o.maximize ? 1.0 : 0};
}
bool LARS::wants_state(std::size_t, const Shape&, std::span<const double> settings) const {
  return settings[lars_at::momentum] > 0;
}
void LARS::update_one(const Stepped& one, const Tensor& g, bool fresh, const Now& now) const {
  const std::span<const double> s = now.settings;
  const Tensor& p = one.param;
  const double decay = s[lars_at::weight_decay], momentum = s[lars_at::momentum];
  const Tensor p_norm = euclidean(p), g_norm = euclidean(g);
  const Tensor ratio =
      s[lars_at::trust_coefficient] * p_norm / (g_norm + decay * p_norm + s[lars_at::eps]);
  Tensor update = (g + decay * p) * trusted(p_norm, g_norm, ratio);
  if (momentum > 0) {
    if (!fresh) mul_(one.first, momentum);
    add_(one.first, update);
    update = s[lars_at::nesterov] != 0 ? update + momentum * one.first : one.first;
  }
  add_(p, update, -s[lars_at::lr]);
}

LAMB::Names LAMB::names() {
  return {"LAMB",       {{"lr"}, {"beta1", 0, 1}, {"beta2", 0, 1}, {"eps"}, {"weight_decay"}},
          {"maximize"}, {"exp_avg", "exp_avg_sq"},
          {},           {},
          true};
}
std::vector<double> LAMB::settings_of(const LAMBOptions& o) {
  return {o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, o.maximize ? 1.0 : 0};
}
void LAMB::update_one(const Stepped& one, const Tensor& g, bool, const Now& now) const {
  const std::span<const double> s = now.settings;
  const Tensor& p = one.param;
  const auto t = static_cast<double>(now.step);
  const double beta1 = s[lamb_at::beta1], beta2 = s[lamb_at::beta2];
  average_into(one.first, g, beta1);
  average_into(one.second, g * g, beta2);
  const Tensor root = sqrt(one.second / (1 - std::pow(beta2, t)));
  const Tensor update = one.first / (1 - std::pow(beta1, t)) / (root + s[lamb_at::eps]) +
                        s[lamb_at::weight_decay] * p;
  const Tensor p_norm = euclidean(p), norm = euclidean(update);
  add_(p, update * trusted(p_norm, norm, p_norm / norm), -s[lamb_at::lr]);
}

}  // namespace peal::nn
