// SPDX-License-Identifier: Apache-2.0
// GradientState (Accelerate has it by this name): what the model, optimizers, loaders and schedules
// that one Accelerator has prepared have to know of each other: whether the batch under way ends a
// step, of how many batches that step is made, which loader gave the batch, and whether the step
// was left out. Thread safety: a rank's thread.
#pragma once

#include <peal/autograd/core/dtype.h>
#include <peal/comm/group/process_group.h>
#include <peal/launch/training/accumulation.h>
#include <peal/nn/amp/grad_scaler.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace peal::launch {

struct LoaderBody;
struct ModelBody;
struct OptimizerBody;
class UnevenInputs;

struct GradientState {
  // `steps`: batches a step; `precision`: of autocast, none for f32.
  GradientState(comm::ProcessGroup ranks, Accumulation accumulation, std::int64_t steps,
                std::optional<DType> precision)
      : group(std::move(ranks)),
        groups(accumulation),
        accumulation_steps(steps),
        lowered(precision),
        scaler({.enabled = precision == DType::f16}, group) {}

  // This turn's gradients are averaged and stepped with.
  bool sync() const { return turn.wanted && turn.step; }
  // Of the batch under way: how many samples it has, and a loader's batch size; 1 outside of a
  // loader.
  double samples() const;
  double nominal_samples() const;
  // How many batches come after the one under way, of a loader with an epoch under way.
  std::int64_t left() const;
  // The scale moves once a step, after all optimizers' parts of it.
  void update_scaler();

  comm::ProcessGroup group;
  Accumulation groups;
  std::int64_t accumulation_steps;
  std::optional<DType> lowered;  // what models compute in
  nn::GradScaler scaler;
  bool scale_is_due = false;
  Accumulation::Turn turn = {};
  std::weak_ptr<ModelBody> trained;                // of the turn, where it is of one model
  std::vector<const LoaderBody*> loaders;          // with an epoch under way, innermost last
  UnevenInputs* uneven = nullptr;                  // while inputs are joined
  std::vector<std::shared_ptr<ModelBody>> models;  // all
  std::vector<std::shared_ptr<OptimizerBody>> optimizers;
};

}  // namespace peal::launch
