// SPDX-License-Identifier: Apache-2.0
// L-BFGS: a quasi-Newton method that keeps the last changes of parameters and gradients in place of
// a Hessian (Nocedal, "Updating quasi-Newton matrices with limited storage", 1980), with PyTorch's
// names, defaults and order of steps. For losses that are the same function at each call: a whole
// set of data, no dropout.
//
//   nn::LBFGS optimizer(model.parameters(), {.strong_wolfe = true});
//   const Tensor loss = optimizer.step([&] {
//     optimizer.zero_grad();
//     const Tensor loss = objective(model);
//     loss.backward();
//     return loss;
//   });
//
// A step runs the closure several times and reads the loss on the host each time, so it cannot lie
// in a captured graph. With several ranks the closure returns the same loss on all of them (the
// mean over the ranks), or they would part. One group; all parameters of one type, f32 or f64, and
// on one device. One without a gradient counts as one with zeros. Thread safety: as of Optimizer.
#pragma once

#include <peal/nn/optim/line_search.h>
#include <peal/nn/optim/optimizer.h>

#include <deque>

namespace peal::nn {

struct LBFGSOptions {
  double lr = 1;
  std::int64_t max_iter = 20;      // of a step
  std::int64_t max_eval = 0;       // calls of the closure in a step; 0: max_iter * 5 / 4
  double tolerance_grad = 1e-7;    // ends where the largest |gradient| is no more
  double tolerance_change = 1e-9;  // or a parameter, or the loss, changes by no more
  std::int64_t history_size = 100;
  bool strong_wolfe = false;  // searches along each direction (line_search.h); else goes lr
  bool maximize = false;
};

class LBFGS : public Optimizer {
 public:
  explicit LBFGS(const Parameters& parameters, const LBFGSOptions& options = {});
  // Returns the loss before the step.
  Tensor step(const std::function<Tensor()>& closure) override;
  // Error: there is no step without a closure.
  void step() override;
  // Over all steps.
  std::int64_t iterations() const { return iterations_; }
  std::int64_t evaluations() const { return evaluations_; }

 protected:
  void check(std::span<const double> settings) const override;
  void update(const Alike&, std::span<const double>) override { step(); }
  NamedTensors own_state() const override;
  std::function<void()> read_own_state(StateReader& reader) override;

 private:
  // What a change of the parameters by `step` did to the gradient.
  struct Change {
    Tensor gradient, step;
    double inverse;  // 1 / (gradient step)
  };
  struct Memory {
    Tensor direction, gradient;  // of the last iteration; undefined before the first
    double step = 0, scale = 1;  // along the direction; of the first Hessian's inverse
    std::deque<Change> changes;  // the oldest first
  };

  Tensor all_gradients() const;
  void move(const Tensor& direction, double step) const;
  void remember(const Tensor& gradient);
  Tensor newton_direction(const Tensor& gradient) const;
  // The loss, negative where it is maximized, and the gradients.
  LinePoint run(const std::function<Tensor()>& closure) const;

  Memory memory_;
  std::int64_t iterations_ = 0, evaluations_ = 0;
};

}  // namespace peal::nn
