// SPDX-License-Identifier: Apache-2.0
// Optimizer: changes parameters along their gradients. A step goes over the parameters in their
// order and makes one fused pass over each that has a gradient; one without a gradient is left as
// it is, and so is its state. State is made at a parameter's first step.
//
// A parameter in f16 or bf16 would lose every update smaller than half the distance to its
// neighbour. So its state is f32 and has a master, the parameter in f32 (Micikevicius et al.,
// "Mixed precision training", ICLR 2018, section 3.1): the step is taken there, and the parameter
// becomes the master rounded. An element of the master that no longer rounds to the parameter's is
// stale, since somebody else wrote the parameter, and starts again from there.
//
// Thread safety: one thread at a time, the one that runs backward.
#pragma once

#include <peal/autograd/core/safetensors.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace peal::nn {

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  void step();
  // Marks all gradients undefined; their storage stays where it is.
  void zero_grad();

  double lr() const { return lr_; }
  void set_lr(double lr);
  const std::vector<Tensor>& parameters() const { return parameters_; }

  // What a resumed run needs to go on bit for bit: "lr", and for the parameter number i that has
  // had a step "i.step" and its tensors, "i.exp_avg" for example, and "i.master". They share
  // storage with the optimizer. The other settings are the constructor's.
  NamedTensors state_dict() const;
  // REQUIRES: made with the same parameters in the same order. Error that lists every key and shape
  // that does not fit; then nothing has changed.
  void load_state_dict(const NamedTensors& state);

 protected:
  struct State {
    std::int64_t step = 0;
    std::vector<Tensor> tensors;  // as many as state_names, once there was a step
    Tensor master;                // f32, of a parameter in low precision
  };

  // Error for no parameters, one that comes twice, one that is not a leaf.
  Optimizer(std::string_view name, std::vector<Tensor> parameters, double lr,
            std::vector<std::string_view> state_names);

  // One pass over one parameter, or its master: f32 or f64. `state.step` counts this step, from 1;
  // the tensors are zero at the first.
  virtual void update(const Tensor& parameter, const Tensor& grad, const State& state) = 0;

 private:
  std::string_view name_;
  std::vector<Tensor> parameters_;
  double lr_;
  std::vector<std::string_view> state_names_;
  std::vector<State> states_;
};

// Error unless low <= value < high. `what` is "SGD: momentum", for example.
void check_setting(std::string_view what, double value, double low, double high);

}  // namespace peal::nn
