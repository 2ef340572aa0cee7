// SPDX-License-Identifier: Apache-2.0
// Join, for uneven inputs (PyTorch: torch.distributed.algorithms.join): ranks with fewer batches
// than others stay in the loop, and take part in the others' collectives with zeros until nobody
// has a batch.
//
//   nn::Join join(ddp);
//   while (join.next(loader.has_next())) {
//     optimizer.zero_grad();
//     if (join.active()) {
//       nll_loss(ddp(x), y).backward();  // x, y: the next batch
//     } else {
//       join.follow();
//     }
//     optimizer.step();
//   }
//
// Every rank calls the optimizer in each turn, with the same gradients, so parameters and the
// optimizer's state stay the same bits everywhere, and nothing needs to be sent at the end (which
// PyTorch's has to, and it leaves the optimizer's state behind). Whatever else a turn has
// (clipping, a scheduler, a collective of the user's own) is called by all, too. Layers with
// collectives of their own take part where these go over the same group (announce.h); buffers are
// those of the lowest rank that has a batch.
//
// A turn may have several forwards, and backwards under no_sync(); for each other backward those
// who follow call follow() once. The average is over all ranks, or over those that have a batch.
// Exact for batches of different sizes is DistributedDataParallel::backward(loss, samples).
// Thread safety: as of the wrapper.
#pragma once

#include <peal/nn/parallel/announce.h>
#include <peal/nn/parallel/ddp.h>

#include <memory>

namespace peal::nn {

struct JoinOptions {
  // What gradients are divided by: the ranks of the group, or those that have a batch in this turn.
  bool divide_by_initial_world_size = true;
};

class Join {
 public:
  // Communicates nothing. Error where the model has a SyncBatchNorm over another group than the
  // wrapper's, of several ranks, or where another Join of the group lives.
  explicit Join(DistributedDataParallel ddp, const JoinOptions& options = {});
  ~Join();
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  // Collective: begins a turn. False when no rank has a batch.
  bool next(bool has_batch);
  // Whether this rank has one in this turn, and how many do.
  bool active() const { return active_; }
  int active_ranks() const { return actives_; }
  // For a rank without a batch: takes part until a synchronised backward of the others is done, and
  // leaves the gradients that they have. False where the others began another turn before.
  bool follow();

 private:
  void announce(const Announcement& what) const;
  Announcement receive() const;
  void take_part(const Announcement& in);
  void set_actives(int actives, int lowest);

  DistributedDataParallel ddp_;
  JoinOptions options_;
  comm::ProcessGroup group_;
  std::uint64_t tag_;
  bool active_ = true, turned_ = false;  // turned: those who have a batch are in next() already
  int actives_, lowest_ = 0;
  std::shared_ptr<void> listening_;
};

}  // namespace peal::nn
