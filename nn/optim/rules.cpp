// SPDX-License-Identifier: Apache-2.0
#include <peal/nn/optim/rules.h>

#include <cmath>

namespace peal::nn {
namespace {

double flag(bool on) { return on ? 1.0 : 0.0; }

// What is left to correct after `step` steps of an average that began at 0.
double correction(double beta, std::int64_t step) {
  return 1 - std::pow(beta, static_cast<double>(step));
}

namespace rms_at {  // of settings
enum : std::size_t { lr, alpha, eps, weight_decay, momentum, centered };
}
namespace adagrad_at {
enum : std::size_t { lr, lr_decay, weight_decay, start, eps };
}
namespace adadelta_at {
enum : std::size_t { lr, rho, eps, weight_decay };
}
namespace adamax_at {
enum : std::size_t { lr, beta1, beta2, eps, weight_decay };
}
namespace nadam_at {
enum : std::size_t { lr, beta1, beta2, eps, weight_decay, momentum_decay, decoupled };
}
namespace radam_at {
enum : std::size_t { lr, beta1, beta2, eps, weight_decay, decoupled };
}
namespace lion_at {
enum : std::size_t { lr, beta1, beta2, weight_decay };
}

}  // namespace

RMSprop::Names RMSprop::names() {
  return {"RMSprop",
          {{"lr"}, {"alpha", 0, 1}, {"eps"}, {"weight_decay"}, {"momentum"}},
          {"centered", "maximize"},
          {"square_avg"},
          {"grad_avg", "momentum_buffer"},
          {}};
}
std::vector<double> RMSprop::settings_of(const RMSpropOptions& o) {
  return {o.lr, o.alpha, o.eps, o.weight_decay, o.momentum, flag(o.centered), flag(o.maximize)};
}
bool RMSprop::wants_state(std::size_t k, const Shape&, std::span<const double> s) const {
  return k == 0 || (k == 1 ? s[rms_at::centered] != 0 : s[rms_at::momentum] > 0);
}
RuleStep RMSprop::rule(const Now& now) const {
  const std::span<const double> s = now.settings;
  const bool momentum = s[rms_at::momentum] > 0, centered = s[rms_at::centered] != 0;
  return {.rule = centered   ? momentum ? Rule::rmsprop_centered_momentum : Rule::rmsprop_centered
                  : momentum ? Rule::rmsprop_momentum
                             : Rule::rmsprop,
          .rate = s[rms_at::lr],
          .weight_decay = s[rms_at::weight_decay],
          .beta1 = s[rms_at::momentum],
          .beta2 = s[rms_at::alpha],
          .eps = s[rms_at::eps]};
}

Adagrad::Names Adagrad::names() {
  return {"Adagrad",
          {{"lr"}, {"lr_decay"}, {"weight_decay"}, {"initial_accumulator_value"}, {"eps"}},
          {"maximize"},
          {"sum"},
          {},
          {}};
}
std::vector<double> Adagrad::settings_of(const AdagradOptions& o) {
  return {o.lr, o.lr_decay, o.weight_decay, o.initial_accumulator_value, o.eps, flag(o.maximize)};
}
double Adagrad::state_start(std::size_t, std::span<const double> s) const {
  return s[adagrad_at::start];
}
RuleStep Adagrad::rule(const Now& now) const {
  const std::span<const double> s = now.settings;
  const double before = static_cast<double>(now.step - 1);
  return {.rule = Rule::adagrad,
          .rate = s[adagrad_at::lr] / (1 + before * s[adagrad_at::lr_decay]),
          .weight_decay = s[adagrad_at::weight_decay],
          .eps = s[adagrad_at::eps]};
}

Adadelta::Names Adadelta::names() {
  return {"Adadelta",   {{"lr"}, {"rho", 0, 1}, {"eps"}, {"weight_decay"}},
          {"maximize"}, {"square_avg", "acc_delta"},
          {},           {}};
}
std::vector<double> Adadelta::settings_of(const AdadeltaOptions& o) {
  return {o.lr, o.rho, o.eps, o.weight_decay, flag(o.maximize)};
}
RuleStep Adadelta::rule(const Now& now) const {
  const std::span<const double> s = now.settings;
  return {.rule = Rule::adadelta,
          .rate = s[adadelta_at::lr],
          .weight_decay = s[adadelta_at::weight_decay],
          .beta2 = s[adadelta_at::rho],
          .eps = s[adadelta_at::eps]};
}

Adamax::Names Adamax::names() {
  return {"Adamax",     {{"lr"}, {"beta1", 0, 1}, {"beta2", 0, 1}, {"eps"}, {"weight_decay"}},
          {"maximize"}, {"exp_avg", "exp_inf"},
          {},           {}};
}
std::vector<double> Adamax::settings_of(const AdamaxOptions& o) {
  return {o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, flag(o.maximize)};
}
RuleStep Adamax::rule(const Now& now) const {
  const std::span<const double> s = now.settings;
  return {.rule = Rule::adamax,
          .rate = s[adamax_at::lr] / correction(s[adamax_at::beta1], now.step),
          .weight_decay = s[adamax_at::weight_decay],
          .beta1 = s[adamax_at::beta1],
          .beta2 = s[adamax_at::beta2],
          .eps = s[adamax_at::eps]};
}

NAdam::Names NAdam::names() {
  return {"NAdam",
          {{"lr"}, {"beta1", 0, 1}, {"beta2", 0, 1}, {"eps"}, {"weight_decay"}, {"momentum_decay"}},
          {"decoupled_weight_decay", "maximize"},
          {"exp_avg", "exp_avg_sq"},
          {},
          {{"mu_product", 1}}};
}
std::vector<double> NAdam::settings_of(const NAdamOptions& o) {
  return {o.lr,
          o.beta1,
          o.beta2,
          o.eps,
          o.weight_decay,
          o.momentum_decay,
          flag(o.decoupled_weight_decay),
          flag(o.maximize)};
}
namespace {
double nadam_mu(std::span<const double> s, std::int64_t step) {
  const double decay = static_cast<double>(step) * s[nadam_at::momentum_decay];
  return s[nadam_at::beta1] * (1 - 0.5 * std::pow(0.96, decay));
}
}  // namespace
void NAdam::advance(std::span<double> numbers, const Now& now) const {
  numbers[0] *= nadam_mu(now.settings, now.step);
}
RuleStep NAdam::rule(const Now& now) const {
  const std::span<const double> s = now.settings;
  const double lr = s[nadam_at::lr], product = now.numbers[0];
  const double mu = nadam_mu(s, now.step), next = nadam_mu(s, now.step + 1);
  const bool decoupled = s[nadam_at::decoupled] != 0;
  const double decay = s[nadam_at::weight_decay];
  return {.rule = Rule::nadam,
          .rate = lr * next / (1 - product * next),
          .weight_decay = decoupled ? 0 : decay,
          .shrink = decoupled ? 1 - lr * decay : 1,
          .beta1 = s[nadam_at::beta1],
          .beta2 = s[nadam_at::beta2],
          .eps = s[nadam_at::eps],
          .root_scale = 1 / std::sqrt(correction(s[nadam_at::beta2], now.step)),
          .grad_rate = lr * (1 - mu) / (1 - product)};
}

RAdam::Names RAdam::names() {
  return {"RAdam",
          {{"lr"}, {"beta1", 0, 1}, {"beta2", 0, 1}, {"eps"}, {"weight_decay"}},
          {"decoupled_weight_decay", "maximize"},
          {"exp_avg", "exp_avg_sq"},
          {},
          {}};
}
std::vector<double> RAdam::settings_of(const RAdamOptions& o) {
  return {o.lr,
          o.beta1,
          o.beta2,
          o.eps,
          o.weight_decay,
          flag(o.decoupled_weight_decay),
          flag(o.maximize)};
}
RuleStep RAdam::rule(const Now& now) const {
  const std::span<const double> s = now.settings;
  const double beta2 = s[radam_at::beta2], t = static_cast<double>(now.step);
  const double left = correction(beta2, now.step);
  // How many gradients the second moment averages over, at last and now.
  const double most = 2 / (1 - beta2) - 1, length = most - 2 * t * std::pow(beta2, t) / left;
  const bool rectified = length > 5;
  const double rectification =
      std::sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length));
  const double lr = s[radam_at::lr], decay = s[radam_at::weight_decay];
  const bool decoupled = s[radam_at::decoupled] != 0;
  return {.rule = rectified ? Rule::radam : Rule::radam_not_rectified,
          .rate = lr / correction(s[radam_at::beta1], now.step) *
                  (rectified ? rectification * std::sqrt(left) : 1),
          .weight_decay = decoupled ? 0 : decay,
          .shrink = decoupled ? 1 - lr * decay : 1,
          .beta1 = s[radam_at::beta1],
          .beta2 = beta2,
          .eps = s[radam_at::eps]};
}

Lion::Names Lion::names() {
  return {"Lion",       {{"lr"}, {"beta1", 0, 1}, {"beta2", 0, 1}, {"weight_decay"}},
          {"maximize"}, {"exp_avg"},
          {},           {}};
}
std::vector<double> Lion::settings_of(const LionOptions& o) {
  return {o.lr, o.beta1, o.beta2, o.weight_decay, flag(o.maximize)};
}
RuleStep Lion::rule(const Now& now) const {
  const std::span<const double> s = now.settings;
  return {.rule = Rule::lion,
          .rate = s[lion_at::lr],
          .shrink = 1 - s[lion_at::lr] * s[lion_at::weight_decay],
          .beta1 = s[lion_at::beta1],
          .beta2 = s[lion_at::beta2]};
}

}  // namespace peal::nn
