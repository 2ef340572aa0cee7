// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/training/accelerator/prepared_optimizer.h>

#include <algorithm>

namespace peal::launch {
namespace {

GradientState& alive(const OptimizerBody& body, std::shared_ptr<GradientState>& held) {
  held = body.state.lock();
  PEAL_CHECK(held,
             "[accelerator] a prepared optimizer is of no use without the Accelerator that "
             "prepared it, which is gone; let that live as long");
  return *held;
}

}  // namespace

void GradientState::update_scaler() {
  if (!scale_is_due) return;
  scaler.update();
  scale_is_due = false;
  for (const auto& each : optimizers) each->unscaled = false;  // what comes next is scaled
}

void unscale(GradientState& state, OptimizerBody& optimizer) {
  if (optimizer.unscaled || state.lowered != DType::f16) return;
  state.scaler.unscale_(optimizer.inner);
  optimizer.unscaled = true;
}

void PreparedOptimizer::step() {
  std::shared_ptr<GradientState> held;
  GradientState& state = alive(*body_, held);
  if (!state.sync()) return;
  bool stepped = true;
  // Of a sharded one the scaler's word is all ranks', so that owners step, or leave out, alike.
  const auto local = [&] { stepped = state.scaler.step(body_->inner); };
  if (body_->shards) {
    body_->shards->step(body_->inner, local);
  } else {
    local();
  }
  body_->unscaled = false;
  body_->skipped = !stepped;
  state.scale_is_due = true;
}

void PreparedOptimizer::zero_grad() {
  std::shared_ptr<GradientState> held;
  GradientState& state = alive(*body_, held);
  if (!state.sync()) return;
  body_->inner.zero_grad();
  if (body_->pieces_of) body_->pieces_of->backwards = 0;  // whose samples count no longer
  // Clipped, and left without a step.
  if (body_->unscaled) state.scale_is_due = true;
}

NamedTensors PreparedOptimizer::state_dict() const {
  if (body_->pieces_of) {
    return PreparedModel(body_->pieces_of).fsdp()->optimizer_state_dict(body_->inner);
  }
  return body_->shards ? body_->shards->state_dict(body_->inner) : body_->inner.state_dict();
}

void PreparedOptimizer::consolidate_state_dict(int to) {
  if (body_->shards) body_->shards->consolidate(body_->inner, to);
}

void PreparedOptimizer::load_state_dict(const NamedTensors& state) {
  if (body_->pieces_of) {
    PreparedModel(body_->pieces_of).fsdp()->load_optimizer_state_dict(body_->inner, state);
    return;
  }
  if (body_->shards) {
    body_->shards->forget();
    body_->shards->place(body_->inner);
  }
  body_->inner.load_state_dict(state);
}

nn::LocalState PreparedOptimizer::local_state() {
  return body_->shards ? body_->shards->local_state(body_->inner) : body_->inner.local_state();
}

nn::Part PreparedOptimizer::part(std::string name) {
  if (body_->pieces_of) {
    return {std::move(name), PreparedModel(body_->pieces_of).fsdp()->saved(body_->inner)};
  }
  return {std::move(name), PreparedOptimizer(body_)};
}

void PreparedScheduler::step() {
  if (!state_->sync()) return;
  const auto& all = state_->optimizers;
  if (std::any_of(all.begin(), all.end(), [](const auto& each) { return each->skipped; })) return;
  std::int64_t next = inner_->steps() + steps_;
  if (inner_->last_step()) next = std::max(inner_->steps(), std::min(next, *inner_->last_step()));
  inner_->set_steps(next);
}

}  // namespace peal::launch
