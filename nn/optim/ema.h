// SPDX-License-Identifier: Apache-2.0
// ExponentialMovingAverage of a model's parameters (Polyak and Juditsky, 1992; as timm's ModelEma,
// and with from_first as PyTorch's swa_utils.AveragedModel with get_ema_avg_fn): after each step of
// the optimizer average = decay average + (1 - decay) parameter. The averages mostly predict better
// than the parameters that training jumps about with:
//
//   nn::ExponentialMovingAverage ema(model, {.decay = 0.999});
//   for (...) { ...; optimizer.step(); ema.update(); }
//   ema.swap();  evaluate(model);  ema.swap();
//
// Averages of low precision are kept in f32. Swapping there and back writes the parameters, so an
// optimizer's masters of them start again from what is rounded (optimizer.h). Replicas under DDP
// are equal after a step, buffers too, and so are their averages: nothing is communicated. An
// update may be part of a captured graph where it decays by the same number each time; each replay
// counts. Thread safety: as of the module.
#pragma once

#include <peal/nn/module.h>

#include <memory>
#include <string_view>

namespace peal::nn {

struct EMAOptions {
  double decay = 0.999;
  bool warm_up = false;  // the n-th update decays by at most (1 + n) / (10 + n), from n = 1
  bool buffers = false;  // floating buffers (running statistics) are averaged too
  // The first update copies the model, so that what it was made with does not count.
  bool from_first = false;
  // The mean over all updates, whatever decay says, as AveragedModel without an avg_fn (Izmailov et
  // al., "Averaging weights leads to wider optima and better generalization", 2018).
  bool equal = false;
};

class ExponentialMovingAverage {
 public:
  // Begins as a copy. Error for a decay outside of [0, 1], and for equal together with warm_up.
  explicit ExponentialMovingAverage(Module module, const EMAOptions& options = {});
  ExponentialMovingAverage(const ExponentialMovingAverage&) = delete;
  ExponentialMovingAverage& operator=(const ExponentialMovingAverage&) = delete;

  // Error while swapped, and in a graph where the number that it decays by is this update's alone.
  void update();
  // The model's tensors become the averages, for good, also while swapped.
  void copy_to();
  // The model's tensors become the averages; the next call gives them back.
  void swap();
  bool swapped() const { return !put_by_.empty(); }
  std::int64_t updates() const { return updates_; }

  // ".updates", and the averages by the model's keys; they share storage with this object. Error
  // where the model's parameters are this rank's pieces (parallel/tensor/), as of Optimizer.
  NamedTensors state_dict() const;
  // Error that names what is missing, unexpected or of another shape, or while swapped; then
  // nothing has changed. The count may come as "updates", as older files have it.
  void load_state_dict(const NamedTensors& state);

 private:
  void check_not_swapped(std::string_view what) const;
  void write_averages();
  double decay_of(std::int64_t update) const;

  EMAOptions options_;
  NamedTensors tensors_;  // the model's
  Tensors averages_, put_by_;
  std::int64_t updates_ = 0;
  std::shared_ptr<ExponentialMovingAverage*> self_ =
      std::make_shared<ExponentialMovingAverage*>(this);  // for graphs
};

}  // namespace peal::nn
