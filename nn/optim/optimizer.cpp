// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/choose.h>
#include <peal/nn/optim/optimizer.h>

#include <limits>
#include <map>
#include <unordered_set>

namespace peal::nn {
namespace {

Tensor fresh_master(const Tensor& master, const Tensor& parameter) {
  const Tensor wide = cast(parameter, DType::f32);
  if (!master.defined()) return wide;
  return where(eq(cast(master, parameter.dtype()), parameter), master, wide);
}

}  // namespace

void check_setting(std::string_view what, double value, double low, double high) {
  PEAL_CHECK(value >= low && value < high, what, ": expected a value from ", low, " to below ",
             high, ", got ", value);
}

Optimizer::Optimizer(std::string_view name, std::vector<Tensor> parameters, double lr,
                     std::vector<std::string_view> state_names)
    : name_(name),
      parameters_(std::move(parameters)),
      lr_(0),
      state_names_(std::move(state_names)),
      states_(parameters_.size()) {
  set_lr(lr);
  PEAL_CHECK(!parameters_.empty(), name_, ": there are no parameters");
  std::unordered_set<const TensorBody*> seen;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    PEAL_CHECK(parameters_[i].is_leaf() && is_floating(parameters_[i].dtype()), name_,
               ": parameter ", i, " of shape ", parameters_[i].shape(),
               " is not a floating leaf but the result of an operation, or of integers");
    PEAL_CHECK(seen.insert(&parameters_[i].body()).second, name_, ": parameter ", i, " of shape ",
               parameters_[i].shape(), " comes twice");
  }
}

void Optimizer::step() {
  const NoGrad guard;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& parameter = parameters_[i];
    const Tensor grad = parameter.grad();
    if (!grad.defined()) continue;
    State& state = states_[i];
    if (state.step++ == 0) {
      for (std::size_t k = 0; k < state_names_.size(); ++k) {
        state.tensors.push_back(
            Tensor::zeros(parameter.shape(), computed_in(parameter.dtype()), parameter.device()));
      }
    }
    if (is_low_precision(parameter.dtype())) {
      state.master = fresh_master(state.master, parameter);
      update(state.master, cast(grad, DType::f32), state);
      parameter.copy_(cast(state.master, parameter.dtype()));
    } else {
      update(parameter, grad, state);
    }
  }
}

void Optimizer::zero_grad() {
  for (const Tensor& parameter : parameters_) parameter.zero_grad();
}

void Optimizer::set_lr(double lr) {
  check_setting(concat(name_, ": lr"), lr, 0, std::numeric_limits<double>::infinity());
  lr_ = lr;
}

NamedTensors Optimizer::state_dict() const {
  NamedTensors result{{"lr", Tensor::scalar(lr_, Device{})}};
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const State& state = states_[i];
    if (state.step == 0) continue;
    result.emplace_back(concat(i, ".step"), Tensor::scalar(state.step, Device{}));
    for (std::size_t k = 0; k < state_names_.size(); ++k) {
      result.emplace_back(concat(i, ".", state_names_[k]), state.tensors[k]);
    }
    if (state.master.defined()) result.emplace_back(concat(i, ".master"), state.master);
  }
  return result;
}

void Optimizer::load_state_dict(const NamedTensors& state) {
  std::map<std::string, Tensor> given(state.begin(), state.end());
  std::vector<std::string> faults;
  // The tensor of that name if it is as expected; it counts as seen.
  const auto take = [&](const std::string& key, const Shape& shape, DType dtype) {
    const auto node = given.extract(key);
    if (node.empty()) {
      faults.push_back(concat("missing: ", key, " ", dtype, " ", shape));
      return Tensor();
    }
    const Tensor& tensor = node.mapped();
    if (tensor.shape() != shape || tensor.dtype() != dtype) {
      faults.push_back(concat("wrong: ", key, ": expected ", dtype, " ", shape, ", got ",
                              tensor.dtype(), " ", tensor.shape()));
      return Tensor();
    }
    return tensor;
  };
  const Tensor lr = take("lr", {}, DType::f64);
  std::vector<State> states(parameters_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!given.contains(concat(i, ".step"))) continue;  // it had no step yet
    const Tensor step = take(concat(i, ".step"), {}, DType::i64);
    if (step) states[i].step = step.item<std::int64_t>();
    if (step && states[i].step < 1) faults.push_back(concat("wrong: ", i, ".step: below 1"));
    const auto take_copy = [&](std::string_view name) {
      const Tensor tensor =
          take(concat(i, ".", name), parameters_[i].shape(), computed_in(parameters_[i].dtype()));
      return tensor ? tensor.to(parameters_[i].device()).clone() : tensor;
    };
    for (const std::string_view name : state_names_) states[i].tensors.push_back(take_copy(name));
    if (is_low_precision(parameters_[i].dtype())) states[i].master = take_copy("master");
  }
  for (const auto& [key, tensor] : given) {
    faults.push_back(concat("unexpected: ", key, " ", tensor.dtype(), " ", tensor.shape()));
  }
  if (!faults.empty()) {
    std::string message = concat(name_, ": load_state_dict: ", faults.size(),
                                 " differences (was it saved with other parameters?)");
    for (const std::string& fault : faults) message += "\n  " + fault;
    fail(std::move(message));
  }
  set_lr(lr.item<double>());
  states_ = std::move(states);
}

}  // namespace peal::nn
