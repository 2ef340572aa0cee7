// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/optimizer.h>
#include <peal/nn/optim/adam.h>

#include <limits>

namespace peal::nn {
namespace {

namespace adam_at {  // of settings
enum : std::size_t { lr, beta1, beta2, eps, weight_decay };
}

}  // namespace

Adam::Adam(std::string_view name, bool decoupled)
    : Optimizer(name, {"lr", "beta1", "beta2", "eps", "weight_decay"}, {"exp_avg", "exp_avg_sq"}),
      decoupled_(decoupled) {}

void Adam::check(std::span<const double> settings) const {
  constexpr double unbounded = std::numeric_limits<double>::infinity();
  check_setting(concat(name(), ": lr"), settings[adam_at::lr], 0, unbounded);
  check_setting(concat(name(), ": beta1"), settings[adam_at::beta1], 0, 1);
  check_setting(concat(name(), ": beta2"), settings[adam_at::beta2], 0, 1);
  check_setting(concat(name(), ": eps"), settings[adam_at::eps], 0, unbounded);
  check_setting(concat(name(), ": weight_decay"), settings[adam_at::weight_decay], 0, unbounded);
}

void Adam::update(const Alike& alike, std::span<const double> settings) {
  const auto options = [decoupled = decoupled_](const Now& now) {
    return AdamStep{.lr = now.settings[adam_at::lr],
                    .beta1 = now.settings[adam_at::beta1],
                    .beta2 = now.settings[adam_at::beta2],
                    .eps = now.settings[adam_at::eps],
                    .weight_decay = now.settings[adam_at::weight_decay],
                    .step = now.step,
                    .decoupled = decoupled};
  };
  AdamStep here = options({alike.step, settings});
  const std::function<AdamStep()> replayed = [options, now = alike.replayed] {
    return options(now());
  };
  if (alike.replayed) here.replayed = &replayed;
  adam_step(alike.list, here);
}

}  // namespace peal::nn
