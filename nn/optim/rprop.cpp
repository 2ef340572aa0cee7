// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/math.h>
#include <peal/nn/optim/rprop.h>

#include <limits>

namespace peal::nn {
namespace {

namespace rprop_at {  // of settings
enum : std::size_t { lr, etaminus, etaplus, step_size_min, step_size_max };
}

}  // namespace

Rprop::Names Rprop::names() {
  constexpr double unbounded = std::numeric_limits<double>::infinity();
  return {
      "Rprop",
      {{"lr"}, {"etaminus", 0, 1}, {"etaplus", 1, unbounded}, {"step_size_min"}, {"step_size_max"}},
      {"maximize"},
      {"prev", "step_size"},
      {},
      {}};
}
std::vector<double> Rprop::settings_of(const RpropOptions& o) {
  return {o.lr, o.etaminus, o.etaplus, o.step_size_min, o.step_size_max, o.maximize ? 1.0 : 0};
}
double Rprop::state_start(std::size_t k, std::span<const double> s) const {
  return k == 1 ? s[rprop_at::lr] : 0;
}
void Rprop::update_one(const Stepped& one, const Tensor& g, bool, const Now& now) const {
  const std::span<const double> s = now.settings;
  const Tensor &before = one.first, &size = one.second;
  const Tensor agreement = g * before, turned = lt(agreement, 0);
  const Tensor factor = where(turned, s[rprop_at::etaminus],
                              where(gt(agreement, 0), s[rprop_at::etaplus], ones_like(g)));
  size.copy_(clamp(size * factor, s[rprop_at::step_size_min], s[rprop_at::step_size_max]));
  before.copy_(where(turned, 0.0, g));  // where it turned it rests for a step
  add_(one.param, sign(before) * size, -1);
}

}  // namespace peal::nn
