// SPDX-License-Identifier: Apache-2.0
// AdamWScheduleFree (Defazio et al., "The road less scheduled", NeurIPS 2024, algorithm 1), with
// the names, defaults and formulas of the schedulefree package: AdamW at a constant rate, whose
// model is the average of what it went through, so that no schedule has to know where the training
// ends. There are three points: z, which steps go from; x, their average, which a model is judged
// and saved with; and y = (1 - beta1) z + beta1 x, at which gradients are taken. The parameters are
// y while it trains, and x otherwise:
//
//   nn::AdamWScheduleFree optimizer(model.named_parameters(), {.lr = 2.5e-3, .warmup_steps = 100});
//   optimizer.train();                      // before the first step, and after each eval()
//   ... steps ...
//   optimizer.eval();                       // before the model is judged, or saved
//
// The Learner and the Trainer call both; a loop of one's own, the Accelerator's too, does it by
// itself. Running statistics of batch norms are those of y: let a few batches of training go
// through the model at x before it is judged. Going to x and back rounds, so runs of equal bits go
// there at equal steps.
//
// Steps are counted parameter by parameter, as Adam's are, and so are their weights: one that had
// no gradient took no part in the step, and its x is the mean of the z that it has had. (The
// package counts by groups.)
//
// Parameters are f32 or f64, and each rank has the state of all that it steps: ZeRO's stages 1 and
// 2, in which others have it, are refused, and pieces of FullyShardedDataParallel are not. Steps
// are made of operations, and cannot lie in a captured graph. Thread safety: as of Optimizer.
#pragma once

#include <peal/nn/optim/optimizer_of.h>

#include <cstdint>

namespace peal::nn {

struct AdamWScheduleFreeOptions {
  double lr = 2.5e-3;
  double beta1 = 0.9, beta2 = 0.999;  // beta1 above 0; where it changes, the next step moves y
  double eps = 1e-8;
  double weight_decay = 0;        // of y, in the step of z
  std::int64_t warmup_steps = 0;  // in which the rate rises to lr
  double r = 0;                   // step k counts in the average for k^r
  double weight_lr_power = 2;     // times the largest rate so far to this power
  bool maximize = false;
};

class AdamWScheduleFree : public OperationOptimizer<AdamWScheduleFree, AdamWScheduleFreeOptions> {
 public:
  using OperationOptimizer::OperationOptimizer;
  static Names names();
  static std::vector<double> settings_of(const AdamWScheduleFreeOptions& o);

  // The parameters become y, to train, or x, to be judged. Nothing where they are, as they are x at
  // first. Which they are is saved with the state.
  void train() override { go(true); }
  void eval() override { go(false); }
  // Errors: the parameters are x; one is of another type.
  void step() override;
  using OperationOptimizer::step;

 protected:
  void advance(std::span<double> numbers, const Now& now) const override;
  void update_one(const Stepped& one, const Tensor& g, bool fresh, const Now& now) const override;

 private:
  void go(bool to_train);
};

}  // namespace peal::nn
