// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/optimizer.h>
#include <peal/nn/optim/sgd.h>

#include <limits>

namespace peal::nn {

SGD::SGD(std::vector<Tensor> parameters, const SGDOptions& options)
    : Optimizer("SGD", std::move(parameters), options.lr,
                options.momentum == 0 ? std::vector<std::string_view>{}
                                      : std::vector<std::string_view>{"momentum_buffer"}),
      options_(options) {
  constexpr double unbounded = std::numeric_limits<double>::infinity();
  check_setting("SGD: momentum", options.momentum, 0, unbounded);
  check_setting("SGD: weight_decay", options.weight_decay, 0, unbounded);
  PEAL_CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
             "SGD: nesterov wants a momentum above 0 and no dampening, got momentum ",
             options.momentum, " and dampening ", options.dampening);
}

void SGD::update(const Tensor& parameter, const Tensor& grad, const State& state) {
  sgd_step(parameter, grad, state.tensors.empty() ? Tensor() : state.tensors[0],
           {.lr = lr(),
            .momentum = options_.momentum,
            .dampening = options_.dampening,
            .weight_decay = options_.weight_decay,
            .nesterov = options_.nesterov,
            .first = state.step == 1});
}

}  // namespace peal::nn
