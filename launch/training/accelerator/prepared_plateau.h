// SPDX-License-Identifier: Apache-2.0
// PreparedPlateau: what Accelerator::prepare() makes of an nn::ReduceLROnPlateau. Its step() is one
// step, however many ranks there are (Accelerate's makes as many as there are ranks, so that its
// patience ends that much earlier), and the measure is the same on all of them, or an Error says
// so: rates that part are models that part. Thread safety: as of the optimizer.
#pragma once

#include <peal/launch/training/accelerator/gradient_state.h>
#include <peal/nn/optim/plateau.h>

#include <memory>
#include <utility>

namespace peal::launch {

class PreparedPlateau {
 public:
  // Accelerator::prepare() makes it. REQUIRES: `inner` outlives it.
  PreparedPlateau(nn::ReduceLROnPlateau& inner, std::shared_ptr<GradientState> state)
      : inner_(&inner), state_(std::move(state)) {}

  // Nothing within a step of the accelerator's. Collective. Error on all ranks, where nothing has
  // changed, for measures that differ. `measure`: as of nn::ReduceLROnPlateau, of any unit; best()
  // is the best so far.
  void step(double measure);
  double best() const { return inner_->best(); }
  nn::ReduceLROnPlateau& unwrap() const { return *inner_; }
  NamedTensors state_dict() const { return inner_->state_dict(); }
  void load_state_dict(const NamedTensors& state) { inner_->load_state_dict(state); }
  // Whether there is another of these than this one.
  bool is_held() const { return alike_.use_count() > 1; }

 private:
  std::shared_ptr<void> alike_ = std::make_shared<int>();
  nn::ReduceLROnPlateau* inner_;
  std::shared_ptr<GradientState> state_;
};

}  // namespace peal::launch
