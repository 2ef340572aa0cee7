// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/arithmetic.h>
#include <peal/nn/optim/asgd.h>

#include <algorithm>
#include <cmath>

namespace peal::nn {
namespace {

namespace asgd_at {  // of settings
enum : std::size_t { lr, lambd, alpha, t0, weight_decay };
}
namespace asgd_number {  // `eta` and `mu` are of the next step, as PyTorch keeps them
enum : std::size_t { eta, mu, eta_now, mu_now };
}

}  // namespace

ASGD::Names ASGD::names() {
  return {"ASGD", {{"lr"}, {"lambd"}, {"alpha"}, {"t0"}, {"weight_decay"}}, {"maximize"}, {"ax"},
          {},     {{"eta", 0}, {"mu", 1}, {"eta_now", 0}, {"mu_now", 1}}};
}
std::vector<double> ASGD::settings_of(const ASGDOptions& o) {
  return {o.lr, o.lambd, o.alpha, o.t0, o.weight_decay, o.maximize ? 1.0 : 0};
}
void ASGD::advance(std::span<double> numbers, const Now& now) const {
  const std::span<const double> s = now.settings;
  const double lr = s[asgd_at::lr], step = static_cast<double>(now.step);
  numbers[asgd_number::eta_now] = now.step == 1 ? lr : numbers[asgd_number::eta];
  numbers[asgd_number::mu_now] = numbers[asgd_number::mu];
  numbers[asgd_number::eta] = lr / std::pow(1 + s[asgd_at::lambd] * lr * step, s[asgd_at::alpha]);
  numbers[asgd_number::mu] = 1 / std::max(1.0, step - s[asgd_at::t0]);
}
void ASGD::update_one(const Stepped& one, const Tensor& g, bool, const Now& now) const {
  const std::span<const double> s = now.settings;
  const Tensor &p = one.param, &average = one.first;
  const double eta = now.numbers[asgd_number::eta_now], mu = now.numbers[asgd_number::mu_now];
  const double decay = s[asgd_at::weight_decay];
  const Tensor slope = decay == 0 ? g : g + p * decay;
  mul_(p, 1 - s[asgd_at::lambd] * eta);
  add_(p, slope, -eta);
  if (mu == 1) {
    average.copy_(p);
  } else {
    add_(average, p - average, mu);
  }
}

}  // namespace peal::nn
