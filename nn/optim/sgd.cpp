// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/optimizer.h>
#include <peal/nn/optim/sgd.h>

#include <limits>

namespace peal::nn {
namespace {

namespace sgd_at {  // of settings
enum : std::size_t { lr, momentum, dampening, weight_decay, nesterov };
}

}  // namespace

SGD::SGD(Parameters parameters, const SGDOptions& options)
    : SGD(std::vector{ParameterGroup<SGDOptions>{std::move(parameters), options}}) {}

SGD::SGD(const std::vector<ParameterGroup<SGDOptions>>& groups)
    : Optimizer("SGD", {"lr", "momentum", "dampening", "weight_decay", "nesterov"},
                {"momentum_buffer"}) {
  for (const auto& [parameters, options] : groups) add_group(parameters, options);
}

void SGD::add_group(const Parameters& parameters, const SGDOptions& options) {
  Optimizer::add_group(parameters, {options.lr, options.momentum, options.dampening,
                                    options.weight_decay, options.nesterov ? 1.0 : 0.0});
}

void SGD::check(std::span<const double> settings) const {
  constexpr double unbounded = std::numeric_limits<double>::infinity();
  check_setting(concat(name(), ": lr"), settings[sgd_at::lr], 0, unbounded);
  check_setting(concat(name(), ": momentum"), settings[sgd_at::momentum], 0, unbounded);
  check_setting(concat(name(), ": weight_decay"), settings[sgd_at::weight_decay], 0, unbounded);
  PEAL_CHECK(settings[sgd_at::nesterov] == 0 ||
                 (settings[sgd_at::momentum] > 0 && settings[sgd_at::dampening] == 0),
             "SGD: nesterov wants a momentum above 0 and no dampening, got momentum ",
             settings[sgd_at::momentum], " and dampening ", settings[sgd_at::dampening]);
}

std::size_t SGD::state_count(std::span<const double> settings) const {
  return settings[sgd_at::momentum] == 0 ? 0 : 1;
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
  SgdStep here = options({alike.step, settings});
  const std::function<SgdStep()> replayed = [options, now = alike.replayed] {
    return options(now());
  };
  if (alike.replayed) here.replayed = &replayed;
  sgd_step(alike.list, here);
}

}  // namespace peal::nn
