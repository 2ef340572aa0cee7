// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/optimizer.h>
#include <peal/nn/optim/adam.h>

#include <limits>

namespace peal::nn {

Adam::Adam(std::string_view name, std::vector<Tensor> parameters, const AdamOptions& options,
           bool decoupled)
    : Optimizer(name, std::move(parameters), options.lr, {"exp_avg", "exp_avg_sq"}),
      options_(options),
      decoupled_(decoupled) {
  constexpr double unbounded = std::numeric_limits<double>::infinity();
  check_setting(concat(name, ": beta1"), options.beta1, 0, 1);
  check_setting(concat(name, ": beta2"), options.beta2, 0, 1);
  check_setting(concat(name, ": eps"), options.eps, 0, unbounded);
  check_setting(concat(name, ": weight_decay"), options.weight_decay, 0, unbounded);
}

void Adam::update(const Tensor& parameter, const Tensor& grad, const State& state) {
  adam_step(parameter, grad, state.tensors[0], state.tensors[1],
            {.lr = lr(),
             .beta1 = options_.beta1,
             .beta2 = options_.beta2,
             .eps = options_.eps,
             .weight_decay = options_.weight_decay,
             .step = state.step,
             .decoupled = decoupled_});
}

}  // namespace peal::nn
