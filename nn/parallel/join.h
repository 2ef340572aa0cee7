// SPDX-License-Identifier: Apache-2.0
// Join, for uneven inputs (PyTorch: torch.distributed.algorithms.join): ranks with fewer batches
// than others stay in the loop, and take part in the others' collectives with zeros until nobody
// has a batch.
//
//   loader.set_epoch(epoch);
//   for (nn::Join join(ddp); join.next(loader.has_next());) {
//     optimizer.zero_grad();
//     if (join.active()) {
//       loss_of(ddp, *loader.next()).backward();
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
//
// A rank that knows how many batches it has says so, join.next(loader.has_next(), loader.left() -
// 1): turns in which all are known to have one cost nothing. Without that each begins with a word
// from every rank, for which the host waits.
//
// Several wrappers over one group that are trained in one loop (a generator and its critic) are
// given to one Join, nn::Join join({a, b}); then a follow() is for each backward of any of them,
// and for one that goes through several of them, once.
// Thread safety: as of the wrapper.
#pragma once

#include <peal/nn/parallel/announce.h>
#include <peal/nn/parallel/ddp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace peal::nn {

struct JoinOptions {
  // What gradients are divided by: the ranks of the group, or those that have a batch in this turn.
  bool divide_by_initial_world_size = true;
  // Nobody follows: in the first turn in which some ranks have a batch and others have none, all
  // get an Error, and the loop can be left alike everywhere.
  bool throw_on_early_termination = false;
};

class Join {
 public:
  // Communicates nothing. Errors, of the first next() and so on all ranks, also where one alone has
  // it: a model with a SyncBatchNorm over another group than the wrapper's, of several ranks;
  // another Join of the group that lives; wrappers of several groups, or one that is there twice.
  explicit Join(DistributedDataParallel ddp, const JoinOptions& options = {});
  explicit Join(std::vector<DistributedDataParallel> ddps, const JoinOptions& options = {});
  ~Join();
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  // Collective: begins a turn. False when no rank has a batch. `more`: this rank is sure to have as
  // many batches after this one. Errors, on all ranks: options or wrappers that are not the same
  // everywhere; throw_on_early_termination; a batch that was sure is not there, after which the
  // group is of no further use. Warns a rank that has had none for 1000 turns.
  bool next(bool has_batch, std::int64_t more = 0);
  // For a loop that all ranks leave at the same turn, before its end: the next turn is the first of
  // an epoch, and what was said of batches to come is forgotten. Communicates nothing.
  void restart();
  // Whether this rank has one in this turn, and how many do.
  bool active() const { return active_; }
  int active_ranks() const { return actives_; }
  // For a rank without a batch: takes part until a synchronised backward of the others is done, and
  // leaves the gradients that they have. False where the others began another turn before. Error on
  // all where they train a wrapper over the group that this Join has not.
  bool follow();

 private:
  void announce(const Announcement& what) const;
  Announcement receive() const;
  void take_part(const Announcement& in);
  DistributedDataParallel& wrapper_of(const Announcement& in);
  void finish_turn();
  std::vector<bool> who_has_a_batch(bool here, std::int64_t more);
  void set_actives(int actives, int lowest);
  void end_epoch();
  void check_actives(const std::vector<bool>& active);
  void warn_of_skew();

  std::vector<DistributedDataParallel> ddps_;
  std::vector<std::uint64_t> wrappers_;  // their numbers in announcements
  JoinOptions options_;
  comm::ProcessGroup group_;
  std::string wrong_;  // what next() is to tell all ranks
  bool on_device_;     // some parameters are
  std::uint64_t tag_;
  bool active_ = true, turned_ = false;  // turned: those who have a batch are in next() already
  int actives_, lowest_ = 0;
  int begun_ = 0;           // wrappers in the backward under way that this rank follows
  std::int64_t turns_ = 0;  // of the epoch; and in which this rank had no batch
  std::int64_t without_ = 0;
  std::int64_t sure_ = 0;  // turns to come in which all ranks have a batch
  std::shared_ptr<void> listening_;
};

}  // namespace peal::nn
