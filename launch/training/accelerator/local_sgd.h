// SPDX-License-Identifier: Apache-2.0
// LocalSGD (Accelerate has it by this name; Lin, Stich, Patel and Jaggi, "Don't use large
// mini-batches, use local SGD", ICLR 2020): for a while each rank trains by itself, and every few
// batches the parameters of all become their mean, in place of the gradients of each.
//
//   {
//     launch::LocalSGD local_sgd(accelerator, model, 8);
//     for (const data::Batch& batch : training) {
//       const auto turn = accelerator.accumulate(model);
//       accelerator.backward(loss_of(model(batch.x), batch.y));
//       optimizer.step();
//       optimizer.zero_grad();
//       local_sgd.step();
//     }
//   }  // once more
//
// Backward sends nothing meanwhile, and a step's gradient is that of the mean over this rank's own
// samples. What the optimizer keeps is each rank's own and stays so, and buffers are rank 0's again
// after the next averaged step; in nn/parallel/local_sgd.h and outer_step.h there is more than
// this. With fp16 ranks still agree in each step whether to leave it out.
// Thread safety: a rank's thread.
#pragma once

#include <peal/launch/training/accelerator/accelerator.h>
#include <peal/nn/parallel/local_sgd.h>

#include <cstdint>
#include <memory>
#include <optional>

namespace peal::launch {

class LocalSGD {
 public:
  // Not enabled, or of one rank, it does nothing. Collective. Errors, on all ranks: fewer than one
  // step; a strategy that has no whole models; a model of another accelerator, or that is in
  // another LocalSGD; within a step of the accelerator's, or join_uneven_inputs(); what ranks give
  // differs. REQUIRES: the accelerator outlives it.
  LocalSGD(Accelerator& accelerator, PreparedModel model, std::int64_t local_sgd_steps,
           bool enabled = true);
  LocalSGD(const LocalSGD&) = delete;
  LocalSGD& operator=(const LocalSGD&) = delete;
  // end(), unless an Error is on its way, when nobody is waited for; within a step the mean all the
  // same, and a warning. A group that fails meanwhile fails again in what comes next.
  ~LocalSGD();

  // After each batch, of all ranks equally many. Collective in every local_sgd_steps-th.
  void step();
  // The last mean; gradients are averaged again from here. Collective. Nothing the second time.
  // Error within a step of the accelerator's, of whose batches gradients are each rank's own.
  void end();

 private:
  bool in_step() const;
  void finish();
  void leave();

  PreparedModel model_;
  std::optional<nn::PeriodicModelAverager> every_, last_;
  std::shared_ptr<void> apart_;
  int unwinding_;
};

}  // namespace peal::launch
