// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/stateful.h>
#include <peal/autograd/grad_slot.h>
#include <peal/launch/training/accumulation.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace peal::launch {

Accumulation::Accumulation(std::int64_t batches, LastGroup last) : batches_(batches), last_(last) {
  PEAL_CHECK(batches >= 1, "[launch] accumulation: expected at least 1 batch a group, got ",
             batches);
}

Accumulation::Turn Accumulation::next(std::int64_t left) {
  PEAL_CHECK(left >= 0, "[launch] accumulation: expected 0 or more batches to come, got ", left,
             "; a group that waits for batches that never come would never end");
  const bool whole = last_ == LastGroup::carry || taken_ + 1 + left >= batches_;
  if (last_ == LastGroup::drop && taken_ == 0 && !whole) return {false, false, 0};
  const std::int64_t group = whole ? batches_ : taken_ + 1 + left;
  ++taken_;
  const bool step = taken_ == group;
  if (step) taken_ = 0;
  return {true, step, group};
}

Accumulation::Turn Accumulation::told(bool step) {
  const std::int64_t group = ++taken_;
  if (step) taken_ = 0;
  return {true, step, group};
}

NamedTensors Accumulation::state_dict() const {
  return {{"batches", Tensor::scalar(taken_, Device{})}};
}

void Accumulation::load_state_dict(const NamedTensors& state) {
  StateReader reader("Accumulation", state);
  const auto taken = reader.number<std::int64_t>("batches");
  if (taken < 0 || taken >= batches_) {
    reader.fault(concat("batches: a group of ", batches_, " cannot have ", taken, " and be open"));
  }
  reader.finish();
  taken_ = taken;
}

NamedTensors Gradients::state_dict() const {
  NamedTensors state;
  for (const auto& [name, parameter] : model_.named_parameters()) {
    if (!parameter.requires_grad()) continue;
    if (const Tensor gradient = parameter.grad(); gradient.defined())
      state.emplace_back(name, gradient.clone());
  }
  return state;
}

void Gradients::load_state_dict(const NamedTensors& state) {
  StateReader reader("Gradients", state);
  std::vector<std::pair<Tensor, Tensor>> all;
  for (const auto& [name, parameter] : model_.named_parameters()) {
    if (!parameter.requires_grad()) continue;
    all.emplace_back(parameter, reader.has(name) ? reader.tensor(name, parameter.shape(),
                                                                 parameter.grad_slot().dtype())
                                                 : Tensor());
  }
  reader.finish();
  for (const auto& [parameter, gradient] : all) {
    parameter.grad_slot().clear();
    if (gradient.defined())
      parameter.grad_slot().accumulate(gradient.to(parameter.device()).clone());
  }
}

}  // namespace peal::launch
