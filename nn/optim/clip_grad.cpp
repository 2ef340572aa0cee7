// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/ops/gradients.h>
#include <peal/autograd/ops/math.h>
#include <peal/nn/optim/clip_grad.h>
#include <peal/nn/optim/optimizer.h>

namespace peal::nn {
namespace {

std::vector<Tensor> gradients(const std::vector<Tensor>& parameters) {
  std::vector<Tensor> all;
  for (const Tensor& parameter : parameters) {
    const Tensor grad = parameter.grad();
    if (grad.defined() && grad.numel() > 0) all.push_back(grad);
  }
  return all;
}

}  // namespace

Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type) {
  PEAL_CHECK(max_norm >= 0 && norm_type >= 1,
             "clip_grad_norm_: expected max_norm >= 0 and norm_type >= 1, got ", max_norm, " and ",
             norm_type);
  check_not_pieces("clip_grad_norm_", parameters, "call the wrapper's clip_grad_norm_()");
  const NoGrad guard;
  return clip_norm(gradients(parameters), norm_type, max_norm);
}

void clip_grad_value_(const std::vector<Tensor>& parameters, double bound) {
  PEAL_CHECK(bound >= 0, "clip_grad_value_: expected a bound of at least 0, got ", bound);
  const NoGrad guard;
  for (const Tensor& grad : gradients(parameters)) grad.copy_(clamp(grad, -bound, bound));
}

}  // namespace peal::nn
