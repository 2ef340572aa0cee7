// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/shape.h>
#include <peal/nn/parameter_vector.h>

#include <algorithm>

namespace peal::nn {

Tensor parameters_to_vector(const std::vector<Tensor>& parameters) {
  PEAL_CHECK(!parameters.empty(), "parameters_to_vector: there are no parameters");
  std::vector<Tensor> parts;
  for (const Tensor& each : parameters) parts.push_back(reshape(each, {each.numel()}));
  return cat(parts, 0);
}

void vector_to_parameters(const Tensor& vector, const std::vector<Tensor>& parameters) {
  std::int64_t count = 0;
  for (const Tensor& each : parameters) count += each.numel();
  PEAL_CHECK(vector.shape() == Shape{count}, "vector_to_parameters: expected a vector of ", count,
             " elements, got shape ", vector.shape());
  const NoGrad guard;
  std::int64_t at = 0;
  for (const Tensor& each : parameters) {
    const Tensor part = view_as(vector.detach().rows(at, at + each.numel()), each);
    each.copy_(cast(part, each.dtype()).to(each.device()));
    at += each.numel();
  }
}

void copy_state(Module to, const Module& from) {
  const auto named = from.named_parameters();
  const auto has_types = [&] {
    return std::ranges::all_of(named, [&](const auto& each) {
      return to.get_parameter(each.first).dtype() == each.second.dtype();
    });
  };
  if (!named.empty()) {
    const Tensor& first = named.front().second;
    const auto own = to.parameters();
    if (!has_types()) to.to(first.dtype());
    PEAL_CHECK(has_types(), from.class_name(),
               ": its parameters are of several types, which the model to copy into has not; make "
               "it with those types");
    if (!own.empty() && own.front().device() != first.device()) to.to(first.device());
  }
  to.load_state_dict(from.state_dict());
  const NoGrad guard;
  for (const auto& [name, buffer] : from.named_buffers()) {
    const Tensor mine = to.get_buffer(name);  // those too that are in no state_dict
    if (mine.shape() == buffer.shape() && mine.dtype() == buffer.dtype()) mine.copy_(buffer);
  }
  for (const auto& [name, parameter] : named) {
    to.get_parameter(name).set_requires_grad(parameter.requires_grad());
  }
  const auto modes = from.named_modules(), mine = to.named_modules();
  for (std::size_t i = 0; i < std::min(modes.size(), mine.size()); ++i) {
    Module module = mine[i].second;
    module.train(modes[i].second.training());
  }
}

}  // namespace peal::nn
