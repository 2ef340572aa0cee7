// SPDX-License-Identifier: Apache-2.0
// Gradient accumulation: several batches for one step of the optimizer, and what becomes of the
// last group of an epoch where the batches do not add up.
//
//   launch::Accumulation groups(4, launch::LastGroup::keep);
//   while (const auto batch = loader.next()) {
//     const auto turn = groups.next(loader.left());
//     if (!turn.wanted) continue;
//     const auto backward = [&] { (loss_of(*batch) / turn.group).backward(); };
//     if (!turn.step) {
//       const auto local = ddp.no_sync();
//       backward();
//       continue;
//     }
//     backward();
//     optimizer.step();
//     optimizer.zero_grad();
//   }
//
// That is the mean of the batches' means, however many the group has. Where batches differ in size,
// ddp.backward(loss, batch->size()) in the place of the division weighs each sample alike. Ranks
// have equally many batches, or they would end groups at different ones. Thread safety: a value.
#pragma once

#include <peal/autograd/core/safetensors.h>
#include <peal/nn/module.h>

#include <cstdint>

namespace peal::launch {

// Of 6 batches in groups of 4:
enum class LastGroup : std::uint8_t {
  keep,  // the other 2 are a step of their own, which weighs them by 2
  drop,  // they go unseen
  carry  // they are the first of a group that the next epoch ends
};

class Accumulation {
 public:
  // Error for less than one batch a group.
  explicit Accumulation(std::int64_t batches, LastGroup last = LastGroup::keep);

  struct Turn {
    bool wanted = true;      // false: the batch is of a group that is dropped
    bool step = true;        // the batch ends its group
    std::int64_t group = 1;  // how many batches the group has
  };
  // For the batch taken last, after which `left` more come in its epoch (DataLoader::left()). Where
  // nobody knows how many, 1 for some and 0 for none say when a group that is kept ends; how many
  // batches it has (`group`) and whether it is dropped are not known then. Error for `left` below
  // 0.
  Turn next(std::int64_t left);
  // The same where somebody else says which batch ends a group, of however many batches.
  Turn told(bool step);
  // A group has begun, and lacks batches.
  bool is_open() const { return taken_ > 0; }

  // "batches" (i64): of the group that is open. A run that is taken up within a group needs what
  // its batches left, too: Gradients.
  NamedTensors state_dict() const;
  void load_state_dict(const NamedTensors& state);

 private:
  std::int64_t batches_;
  LastGroup last_;
  std::int64_t taken_ = 0;  // of the group that is open
};

// The gradients that a rank has of a model, as a part of a checkpoint within a group: each rank's
// own. (Within a group of DistributedDataParallel::backward(loss, samples) the number of samples is
// not among them; save between groups.)
class Gradients {
 public:
  // Of the model's parameters, those that have none left out.
  explicit Gradients(nn::Module model) : model_(std::move(model)) {}
  // By parameter; what has none is left out.
  NamedTensors state_dict() const;
  // What is left out has none afterwards. Error for what fits no parameter; nothing has changed
  // then.
  void load_state_dict(const NamedTensors& state);

 private:
  nn::Module model_;
};

}  // namespace peal::launch
