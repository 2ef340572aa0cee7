// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/math.h>
#include <peal/nn/optim/schedule_free.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>

namespace peal::nn {
namespace {

namespace schedule_free_at {  // of settings
enum : std::size_t { lr, beta1, beta2, eps, weight_decay, warmup_steps, r, weight_lr_power };
}
// `rate`, `share`, of the newest z in x, and `moved`, of y to z, are of the step; `beta1` is what y
// is made with.
namespace schedule_free_number {
enum : std::size_t { weight_sum, lr_max, rate, share, beta1, moved };
}

}  // namespace

AdamWScheduleFree::Names AdamWScheduleFree::names() {
  constexpr double least = std::numeric_limits<double>::min();
  return {
      "AdamWScheduleFree",
      {{"lr"},
       {"beta1", least, 1},
       {"beta2", 0, 1},
       {"eps"},
       {"weight_decay"},
       {"warmup_steps"},
       {"r"},
       {"weight_lr_power"}},
      {"maximize", "train_mode"},
      {"z", "exp_avg_sq"},
      {},
      {{"weight_sum", 0}, {"lr_max", 0}, {"rate", 0}, {"share", 0}, {"beta1", 0}, {"moved", 0}}};
}

std::vector<double> AdamWScheduleFree::settings_of(const AdamWScheduleFreeOptions& o) {
  return {o.lr,  o.beta1,           o.beta2,
          o.eps, o.weight_decay,    static_cast<double>(o.warmup_steps),
          o.r,   o.weight_lr_power, o.maximize ? 1.0 : 0,
          0};
}

void AdamWScheduleFree::step() {
  for (std::size_t g = 0; g < group_count(); ++g) {
    PEAL_CHECK(setting("train_mode", g) != 0, name(),
               ": step: the parameters are those that the model is judged with; call train() "
               "before a training, and eval() before a model is judged or saved");
  }
  for (std::size_t p = 0; p < parameters().size(); ++p) {
    PEAL_CHECK(!is_low_precision(parameters()[p].dtype()), name(), ": step: ", called(p), " is ",
               parameters()[p].dtype(),
               "; expected f32 or f64 (Autocast computes in low precision with such)");
  }
  Optimizer::step();
}

void AdamWScheduleFree::advance(std::span<double> numbers, const Now& now) const {
  namespace at = schedule_free_at;
  namespace number = schedule_free_number;
  const std::span<const double> s = now.settings;
  const auto step = static_cast<double>(now.step);
  const double rate = s[at::lr] * (step <= s[at::warmup_steps] ? step / s[at::warmup_steps] : 1);
  numbers[number::lr_max] = std::max(numbers[number::lr_max], rate);
  const double weight =
      std::pow(step, s[at::r]) * std::pow(numbers[number::lr_max], s[at::weight_lr_power]);
  numbers[number::weight_sum] += weight;
  numbers[number::rate] = rate;
  numbers[number::share] = weight == 0 ? 0 : weight / numbers[number::weight_sum];
  const double before = numbers[number::beta1], after = s[at::beta1];
  numbers[number::moved] = before == 0 ? 0 : 1 - after / before;
  numbers[number::beta1] = after;
}

void AdamWScheduleFree::update_one(const Stepped& one, const Tensor& g, bool fresh,
                                   const Now& now) const {
  namespace at = schedule_free_at;
  namespace number = schedule_free_number;
  const std::span<const double> s = now.settings;
  const Tensor &y = one.param, &z = one.first, &squares = one.second;
  if (fresh) z.copy_(y);
  const double beta2 = s[at::beta2], rate = now.numbers[number::rate];
  const double share = now.numbers[number::share];
  mul_(squares, beta2);
  add_(squares, g * g, 1 - beta2);
  const double seen = 1 - std::pow(beta2, static_cast<double>(now.step));
  Tensor along = g / (sqrt(squares / seen) + s[at::eps]);
  if (s[at::weight_decay] != 0) along = along + y * s[at::weight_decay];
  // y is of the beta1 that there was, which a schedule may have changed; x stays.
  if (now.numbers[number::moved] != 0) add_(y, z - y, now.numbers[number::moved]);
  // Of y alone, without x: both its points move.
  add_(y, z - y, share);
  add_(y, along, rate * (s[at::beta1] * (1 - share) - 1));
  add_(z, along, -rate);
}

// From y = (1 - beta1) z + beta1 x to x, and back, by the beta1 of the last step.
void AdamWScheduleFree::go(bool to_train) {
  bool are_there = true;
  for (std::size_t g = 0; g < group_count(); ++g)
    are_there = are_there && (setting("train_mode", g) != 0) == to_train;
  if (are_there) return;
  const NoGrad guard;
  std::map<std::string, Tensor> state;
  for (auto& [key, tensor] : local_state_dict()) state.emplace(key, tensor);
  std::size_t next = 0;
  for (std::size_t g = 0; g < group_count(); ++g) {
    const auto count = static_cast<std::size_t>(
        state.at(concat("groups.", g, ".parameters")).item<std::int64_t>());
    const std::size_t end = next + count;
    const bool is_there = (setting("train_mode", g) != 0) == to_train;
    for (; next < end; ++next) {
      const auto z = state.find(parameter_names()[next] + ".z");
      const Tensor& parameter = parameters()[next];
      if (is_there || z == state.end() || parameter.numel() == 0) continue;
      const auto beta1 = state.at(parameter_names()[next] + ".beta1").item<double>();
      add_(parameter, z->second - parameter, to_train ? 1 - beta1 : 1 - 1 / beta1);
    }
    set_setting("train_mode", to_train ? 1 : 0, g);
  }
}

}  // namespace peal::nn
