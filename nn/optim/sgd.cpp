// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/optimizer.h>
#include <peal/nn/optim/sgd.h>

#include <limits>

namespace peal::nn {
namespace {

namespace sgd_at {  // of settings
enum : std::size_t { lr, momentum, dampening, weight_decay, nesterov };
}

constexpr double unbounded = std::numeric_limits<double>::infinity();

}  // namespace

SGD::SGD(Parameters parameters, const SGDOptions& options)
    : SGD(std::vector{ParameterGroup<SGDOptions>{std::move(parameters), options}}) {}

SGD::SGD(const std::vector<ParameterGroup<SGDOptions>>& groups)
    : Optimizer({"SGD",
                 {{"lr"}, {"momentum"}, {"dampening", -unbounded}, {"weight_decay"}, {"nesterov"}},
                 {"maximize"},
                 {},
                 {"momentum_buffer"},
                 {}}) {
  for (const auto& [parameters, options] : groups) add_group(parameters, options);
}

void SGD::add_group(const Parameters& parameters, const SGDOptions& options) {
  Optimizer::add_group(parameters,
                       {options.lr, options.momentum, options.dampening, options.weight_decay,
                        options.nesterov ? 1.0 : 0.0, options.maximize ? 1.0 : 0.0});
}

void SGD::check(std::span<const double> settings) const {
  Optimizer::check(settings);
  PEAL_CHECK(settings[sgd_at::nesterov] == 0 ||
                 (settings[sgd_at::momentum] > 0 && settings[sgd_at::dampening] == 0),
             "SGD: nesterov wants a momentum above 0 and no dampening, got momentum ",
             settings[sgd_at::momentum], " and dampening ", settings[sgd_at::dampening]);
}

bool SGD::wants_state(std::size_t, const Shape&, std::span<const double> settings) const {
  return settings[sgd_at::momentum] != 0;
}

void SGD::update(const Alike& alike, std::span<const double> settings) {
  const auto options = [fresh = alike.fresh](const Now& now) {
    return SgdStep{.lr = now.settings[sgd_at::lr],
                   .momentum = now.settings[sgd_at::momentum],
                   .dampening = now.settings[sgd_at::dampening],
                   .weight_decay = now.settings[sgd_at::weight_decay],
                   .nesterov = now.settings[sgd_at::nesterov] != 0,
                   .first = fresh};
  };
  SgdStep here = options({alike.step, settings, {}});
  const std::function<SgdStep()> replayed = [options, now = alike.replayed] {
    return options(now());
  };
  if (alike.replayed) here.replayed = &replayed;
  sgd_step(alike.list, here);
}

}  // namespace peal::nn
