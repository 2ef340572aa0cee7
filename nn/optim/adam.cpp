// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/optimizer.h>
#include <peal/nn/optim/adam.h>

#include <cmath>

namespace peal::nn {
namespace {

namespace adam_at {  // of settings
enum : std::size_t { lr, beta1, beta2, eps, weight_decay, amsgrad };
}

}  // namespace

Adam::Adam(std::string_view name, bool decoupled)
    : Optimizer({name,
                 {{"lr"}, {"beta1", 0, 1}, {"beta2", 0, 1}, {"eps"}, {"weight_decay"}},
                 {"amsgrad", "maximize"},
                 {"exp_avg", "exp_avg_sq"},
                 {"max_exp_avg_sq"},
                 {}}),
      decoupled_(decoupled) {}

bool Adam::wants_state(std::size_t k, const Shape&, std::span<const double> settings) const {
  return k < 2 || settings[adam_at::amsgrad] != 0;
}

namespace {

RuleStep amsgrad_step(std::int64_t step, std::span<const double> settings, bool decoupled) {
  const double lr = settings[adam_at::lr], decay = settings[adam_at::weight_decay];
  const double beta1 = settings[adam_at::beta1], beta2 = settings[adam_at::beta2];
  const auto t = static_cast<double>(step);
  return {.rule = Rule::amsgrad,
          .rate = lr / (1 - std::pow(beta1, t)),
          .weight_decay = decoupled ? 0 : decay,
          .shrink = decoupled ? 1 - lr * decay : 1,
          .beta1 = beta1,
          .beta2 = beta2,
          .eps = settings[adam_at::eps],
          .root_scale = 1 / std::sqrt(1 - std::pow(beta2, t))};
}

}  // namespace

void Adam::update(const Alike& alike, std::span<const double> settings) {
  if (settings[adam_at::amsgrad] != 0) {
    RuleStep here = amsgrad_step(alike.step, settings, decoupled_);
    const std::function<RuleStep()> replayed = [decoupled = decoupled_, next = alike.replayed] {
      const Now now = next();
      return amsgrad_step(now.step, now.settings, decoupled);
    };
    if (alike.replayed) here.replayed = &replayed;
    return rule_step(alike.list, here);
  }
  const auto options = [decoupled = decoupled_](const Now& now) {
    return AdamStep{.lr = now.settings[adam_at::lr],
                    .beta1 = now.settings[adam_at::beta1],
                    .beta2 = now.settings[adam_at::beta2],
                    .eps = now.settings[adam_at::eps],
                    .weight_decay = now.settings[adam_at::weight_decay],
                    .step = now.step,
                    .decoupled = decoupled};
  };
  AdamStep here = options({alike.step, settings, {}});
  const std::function<AdamStep()> replayed = [options, now = alike.replayed] {
    return options(now());
  };
  if (alike.replayed) here.replayed = &replayed;
  adam_step(alike.list, here);
}

}  // namespace peal::nn
