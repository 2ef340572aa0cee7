// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/optimizer.h>
#include <peal/nn/optim/adam.h>

#include <limits>

namespace peal::nn {
namespace {

namespace at {  // of settings
enum : std::size_t { lr, beta1, beta2, eps, weight_decay };
}

}  // namespace

Adam::Adam(std::string_view name, bool decoupled)
    : Optimizer(name, {"lr", "beta1", "beta2", "eps", "weight_decay"}, {"exp_avg", "exp_avg_sq"}),
      decoupled_(decoupled) {}

void Adam::check(std::span<const double> settings) const {
  constexpr double unbounded = std::numeric_limits<double>::infinity();
  check_setting(concat(name(), ": lr"), settings[at::lr], 0, unbounded);
  check_setting(concat(name(), ": beta1"), settings[at::beta1], 0, 1);
  check_setting(concat(name(), ": beta2"), settings[at::beta2], 0, 1);
  check_setting(concat(name(), ": eps"), settings[at::eps], 0, unbounded);
  check_setting(concat(name(), ": weight_decay"), settings[at::weight_decay], 0, unbounded);
}

void Adam::update(const Alike& alike, std::span<const double> settings) {
  adam_step(alike.list, {.lr = settings[at::lr],
                         .beta1 = settings[at::beta1],
                         .beta2 = settings[at::beta2],
                         .eps = settings[at::eps],
                         .weight_decay = settings[at::weight_decay],
                         .step = alike.step,
                         .decoupled = decoupled_});
}

}  // namespace peal::nn
