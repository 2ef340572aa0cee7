// SPDX-License-Identifier: Apache-2.0
// Uneven inputs under the Accelerator (Accelerate: join_uneven_inputs): ranks may have different
// numbers of batches, and the loop is the plain one.
//
//   const auto joined = accelerator.join_uneven_inputs({model}, /*even_batches=*/false);
//   for (const data::Batch& batch : training) { ... }   // two on rank 0, one on rank 1, say
//
// A rank without a batch stays in the loader, which takes part in the others' backwards as nn::Join
// has it, until nobody has one; so the loop is over on all ranks at once. It has not called the
// optimizers meanwhile: at the end it gets what the others have, parameters, buffers, optimizers
// and schedules (in PyTorch's join the optimizer's state stays behind). Turns are those of the rank
// with the most batches, so steps of several batches end at the same turn everywhere, and gradients
// are those of the mean over the samples that there are.
//
// Loops are joined that begin outside of others, in the context: one within (an evaluation) is each
// rank's own, and so is what goes on, by next(), with an epoch that was under way before. In
// the body of a turn that some ranks have no batch for, whatever else all ranks have to call is an
// Error on all of them: gather() and its like belong behind the loop. A rank that leaves the loop
// early has no more batches; before the turns are over for which all have one, all leave alike.
// Thread safety: a rank's thread.
#pragma once

#include <peal/launch/training/accelerator/prepared_loader.h>
#include <peal/launch/training/accelerator/prepared_model.h>
#include <peal/nn/checkpoint.h>
#include <peal/nn/parallel/join.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace peal::launch {

class UnevenInputs {
 public:
  // `others`: what a rank that had no batch for some turns has to be given, beside the models.
  // REQUIRES: it outlives this.
  UnevenInputs(std::shared_ptr<GradientState> state, const std::vector<PreparedModel>& models,
               std::vector<nn::Part> others);

  // A loop over that loader begins, of so many batches, where it knows that. Collective, where it
  // is joined.
  void begin(const LoaderBody& loader, std::int64_t batches);
  // It has taken a batch, or found that there is none: then this is over when no rank has one.
  // Collective, where the loop is joined.
  void turn(const LoaderBody& loader, bool has_batch);
  // It is over, or was left early. Throws nothing: a group that fails here fails again in what
  // comes next. `unwinding`: an Error ends it, and nobody is waited for.
  void end(const LoaderBody& loader, bool unwinding) noexcept;
  // How many turns come after this one, of a loop that is joined; else what the loader has left.
  std::int64_t left(const LoaderBody& loader) const;

 private:
  void ask_left(const LoaderBody& loader, bool has_batch);
  void follow();
  void finish();

  std::shared_ptr<GradientState> state_;
  std::vector<PreparedModel> models_;
  std::vector<nn::Part> others_;
  nn::Join join_;
  std::size_t depth_;                 // at most so many loops are under way outside
  const LoaderBody* loop_ = nullptr;  // the joined one
  // Of the rank with the most batches and of the one with the least, as far as they know.
  std::int64_t turns_ = 0, most_ = 0, least_ = 0;
  bool was_uneven_ = false, had_last_ = false;
};

// The same loader in the same place, whose ranks have each sample once, or equally many batches;
// null where it is so, or has no say about that: a plan, a sampler, a set that is not shared out,
// drop_last.
std::unique_ptr<data::DataLoader> with_even_batches(const data::DataLoader& loader, bool even);

}  // namespace peal::launch
