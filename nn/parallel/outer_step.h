// SPDX-License-Identifier: Apache-2.0
// Outer optimizers of local SGD: ranks train by themselves for many steps, each with an optimizer
// of its own and no message, and then how far they have come, on average, is the gradient of one
// step of another optimizer, the outer one, from where all of them began.
//
//   nn::DiLoCo outer(group, model.named_parameters(), {.sync_every = 500});
//   ...; optimizer.step(); outer.step();
//
// DiLoCo (Douillard et al., "DiLoCo: distributed low-communication training of language models",
// 2023): g = begin - mean(x); SGD with Nesterov momentum goes on from `begin`. SlowMo (Wang,
// Tantia, Ballas and Rabbat, "SlowMo: improving communication-efficient distributed SGD with slow
// momentum", ICLR 2020): u = beta u + (begin - mean(x)) / lr; x = begin - alpha lr u, where lr is
// the inner optimizer's. The names and defaults are torchft's, OpenDiLoCo's and PyTorch's.
//
// What they hold, where all began and the momentum, are two copies of the parameters, in f32 of
// those in low precision; while they average, the distances are a third. Gradients must not be
// averaged by a wrapper meanwhile, or only within a node (local_sgd.h). Thread safety: one thread
// at a time, the one that trains.
#pragma once

#include <peal/comm/group/process_group.h>
#include <peal/nn/optim/sgd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace peal::nn {

// What both are made of: one SGD over where all began.
class OuterStep {
 public:
  // Steps of the inner optimizer so far.
  std::int64_t step_count() const { return steps_; }
  // Where all began, by the parameters' names ("begin.fc1.weight"), the outer optimizer's state
  // ("outer.0.momentum_buffer", ...) and "step" (i64). Equal on all ranks after an average; between
  // two, each rank saves its parameters itself. Settings are none of it: those of the options count
  // after loading, too.
  NamedTensors state_dict() const;
  void load_state_dict(const NamedTensors& state);

 protected:
  OuterStep(std::string_view who, comm::ProcessGroup group, const Parameters& parameters,
            std::int64_t period, const SGDOptions& options);
  // Counts a step; true in every `period`-th.
  bool comes();
  // Collective: the outer step along (begin - mean(x)) / divisor, from which all go on.
  void take(double lr, double divisor);

 private:
  void agree(const std::string& wrong = {});

  std::string who_;
  comm::ProcessGroup group_;
  Parameters parameters_;
  std::int64_t period_;
  SGDOptions options_;
  std::vector<Tensor> begin_;
  std::unique_ptr<SGD> outer_;
  std::int64_t steps_ = 0, loaded_ = 0;  // those that the state had which was loaded
  bool agreed_ = false;  // all ranks have these options and what was loaded, and are in this step
};

struct DiLoCoOptions {
  std::int64_t sync_every = 500;  // steps of the inner optimizer
  SGDOptions outer{.lr = 0.7, .momentum = 0.9, .nesterov = true};
};

class DiLoCo : public OuterStep {
 public:
  // Collective: every rank's parameters become rank 0's. Error on all ranks, and the group goes on,
  // where their options or parameters differ or one finds them wrong.
  DiLoCo(comm::ProcessGroup group, const Parameters& parameters, const DiLoCoOptions& options = {});
  // After each step of the inner optimizer. Collective in every sync_every-th; the first such call
  // after loading is an Error on all ranks where their options, states or steps differ.
  void step();

 private:
  double lr_;
};

struct SlowMoOptions {
  std::int64_t slowmo_freq = 48;  // steps of the inner optimizer
  double slowmo_factor = 0.5;     // beta
  double slowmo_lr = 1;           // alpha
};

class SlowMomentum : public OuterStep {
 public:
  // Collective, as DiLoCo's.
  SlowMomentum(comm::ProcessGroup group, const Parameters& parameters,
               const SlowMoOptions& options = {});
  // As DiLoCo's. `lr`: the inner optimizer's; in a step that averages above 0 and equal on all
  // ranks, else an Error on all of them.
  void step(double lr);

 private:
  double alpha_;
};

}  // namespace peal::nn
