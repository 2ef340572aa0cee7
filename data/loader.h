// SPDX-License-Identifier: Apache-2.0
// The loader: an epoch's samples in batches, made ahead of time by worker threads and handed out in
// order.
//
//   data::DataLoader loader(train, {.batch_size = 32, .shuffle = true, .shard = job.place()});
//   for (int epoch = 0; epoch < epochs; ++epoch) {
//     for (const auto& [images, classes] : loader) step(images, classes);
//   }
//
// Each pass is an epoch, in an order of its own. The loader follows a plan: the batches of an
// epoch, as a value (batches.h). The options make it, from shard() of sampler.h; or a sampler of
// one's own, whose order() is cut into batches; or a function that gives the batches themselves.
// Batches are found when they are made, so an epoch is opened anywhere at once.
// Workers take its batches by number, and what is drawn to augment a sample belongs to the sample
// (draw.h), so neither their count nor their speed changes what comes out. At most workers ·
// prefetch batches are in the making or waiting at any time.
//
// Invariant: batch k is handed out after batch k - 1, or an error instead of it. Thread safety: a
// loader belongs to one thread, which need not be the one that made it. Workers inherit the context
// of the thread that opens the epoch.
#pragma once

#include <peal/autograd/core/device.h>
#include <peal/autograd/core/place.h>
#include <peal/autograd/core/stateful.h>
#include <peal/data/bad_samples.h>
#include <peal/data/batches.h>
#include <peal/data/dataset.h>
#include <peal/data/sampler.h>

#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace peal::data {

class CopyAhead;
class Prefetch;

struct LoaderOptions {
  std::int64_t batch_size = 1;  // a rank
  bool shuffle = false;         // another order in each epoch
  // This rank's part of the set: every world-th sample of an order that all ranks have.
  std::optional<Place> shard = {};
  // Or how else the ranks share that order (deal.h), with a shard: batches, split, contiguous or
  // dispatched. A batch_size of `split` is of all ranks together.
  Way way = Way::samples;
  // What orders and augmentation are drawn from, equal on all ranks. Unset: with a shard, a sampler
  // or a plan 0, else what manual_seed() gave the thread that makes the loader.
  std::optional<std::uint64_t> seed = {};
  int workers = 0;   // threads; 0: batches are made by whoever asks for them
  int prefetch = 2;  // batches ahead, a worker
  // Leaves out a last batch of fewer than batch_size samples; of another way than `samples`, what
  // is left when not every rank has a full batch.
  bool drop_last = false;
  // With a shard: every sample once, so that ranks may differ by one, as evaluation wants it. Else
  // ranks have equal numbers, and the first samples come twice where that does not add up.
  bool exact = false;
  // So many samples of an epoch, of this rank, wherever it was taken up, may fail: each is named in
  // the log and has another one in its place (bad_samples.h); one more is an error. 0: the first
  // one is.
  std::int64_t max_bad_samples = 0;
  // Where batches shall be. On a device they are copied ahead of time, from page-locked memory.
  Device device = {};
};

class DataLoader {
 public:
  // Errors: no data set, batch_size or prefetch < 1, workers < 0, a shard outside of its world,
  // max_bad_samples < 0, exact or a way without a shard, those of deal(), of a way exact together
  // with drop_last, and exact together with max_bad_samples.
  explicit DataLoader(DatasetRef dataset, LoaderOptions options = {});
  // By a sampler, which has the say about order, shard and epoch (Sampler::set_epoch). Errors: as
  // above, also of one that is exact, no sampler, or shuffle, shard, way or exact in the options.
  DataLoader(DatasetRef dataset, std::shared_ptr<Sampler> sampler, LoaderOptions options = {});
  // By a plan, which has the say about everything that is in which batch. Errors: as above, no
  // plan, or batch_size, drop_last, shuffle, shard, way or exact in the options.
  DataLoader(DatasetRef dataset, BatchPlan plan, LoaderOptions options = {});
  // Stops the workers; waits for no more than the batches they have in hand.
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  // The next batch of the epoch, or nothing at its end. The first call, and the first after an end,
  // open an epoch. Error: what the data set threw, whichever thread it threw on, with the sample it
  // is about (the data set's own is nested in it: std::rethrow_if_nested); after one, every call
  // throws it again until begin() opens an epoch or resume() says where to go on, as with
  // resume(epoch(), consumed()) for another try.
  std::optional<Batch> next();

  // Whether a batch of epoch() is still to come, known without making it: after next(), false says
  // that it was the last (nn::Join asks, and whoever does something at the end of an epoch). It
  // stays false until another epoch is begun: by next(), which says once that this one is over, by
  // begin(), or by set_epoch(), with which each epoch of a loop that asks begins.
  bool has_next() const { return left() > 0; }
  // How many batches of epoch() are still to come.
  std::int64_t left() const { return size() - (within() ? batches_taken_ : 0); }

  const Dataset& dataset() const { return *dataset_; }
  // What it was made of, for who makes another like it (launch::Accelerator): null where there is
  // no sampler or no plan; the options have the seed that there is.
  const DatasetRef& dataset_ref() const { return dataset_; }
  const std::shared_ptr<Sampler>& sampler() const { return sampler_; }
  const BatchPlan& plan() const { return plan_; }
  LoaderOptions options() const {
    LoaderOptions all = options_;
    all.seed = seed_;
    return all;
  }
  // Batches of the coming epoch, or of the one that is open.
  std::int64_t size() const;
  // Samples handed out in the running epoch, for DistributedSampler::consumed_after(); 0 when it is
  // over.
  std::int64_t taken() const { return taken_; }
  // The samples that others stand in for, of the epoch that is open or that was open last, in what
  // was handed out of it.
  const std::vector<BadSample>& bad_samples() const { return bad_samples_; }
  // Where the samples of the last batch stand in the order of all ranks in this epoch, -1 for those
  // that come again, to make ranks equal or in the place of a bad one: by this, what ranks find is
  // put together in the order of one (launch::gather_in_order). Empty before the first and after
  // the last. Error with a plan, which does not say.
  std::vector<std::int64_t> places() const;

  // Epochs count by themselves from 0, unless a sampler does (Sampler::epoch), which is told the
  // next one when an epoch is over; the running one, which an error does not end, or else the
  // coming one.
  std::int64_t epoch() const { return within() ? running_ : coming(); }
  // The epoch to open next, from its start.
  void set_epoch(std::int64_t epoch);
  // Takes up an epoch of which all ranks together have seen `consumed` samples (Error where it has
  // fewer), under whatever world size. With a sampler it means what Sampler::resume() says. With a
  // plan or a way it counts batches of this rank: its first ones are left out.
  void resume(std::int64_t epoch, std::int64_t consumed);
  // Leaves out the next `count` batches of epoch(), without making them: the first ones, where it
  // has not begun. Later epochs are whole. (Accelerate: skip_first_batches.) Error where it has
  // fewer.
  void skip_first_batches(std::int64_t count);
  // What has been seen of epoch(), as resume() takes it. Error within an epoch of a sampler that
  // cannot be taken up there.
  std::int64_t consumed() const;
  // "epoch", and "consumed", with a plan "batches", or with a way "dealt"; "seed" where orders are
  // drawn, and "augmentation" where that is drawn from another; "samples", the size of the set, or
  // what a sampler's order_of() says (i64; 32 bytes but for a way's and a sampler's). A loader made
  // alike that loads them takes the seed on where its options name none, and goes on with the
  // sample after the last one handed out (what a device's copy ahead has in hand, and a batch that
  // failed, come again); but for a plan its world and batch_size may be others, and after a way the
  // way too. With max_bad_samples also "bad_samples" (i64), how many there were in the epoch so
  // far. Ranks' states are but for that alike when all have taken equally many batches, so one's
  // will do for all, but: at the end of an exact epoch those that have a batch less are in the next
  // epoch already, and a DistributedSampler's ranks that have a sample less count less, so save
  // rank 0's; and a plan's places are each rank's own where ranks have different numbers of
  // batches. Error where consumed() is one, and in loading a place within an epoch whose
  // order was another: of another seed, or of another number of samples. Older states do not say
  // all of it, and are taken where there is such a place.
  NamedTensors state_dict() const;
  void load_state_dict(const NamedTensors& state);

  // An epoch as a range. begin() opens a new one, wherever the last was left: the next, or of a
  // sampler that has the say about epochs the same one, from its start, unless all its batches
  // came.
  class Iterator {
   public:
    using difference_type = std::ptrdiff_t;
    using value_type = Batch;
    using iterator_concept = std::input_iterator_tag;

    Batch& operator*() const { return *loader_->current_; }
    Batch* operator->() const { return &*loader_->current_; }
    Iterator& operator++() {
      loader_->advance();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return !loader_->current_; }

   private:
    friend class DataLoader;
    explicit Iterator(DataLoader* loader) : loader_(loader) {}
    DataLoader* loader_;
  };
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

 private:
  // A batch and the samples in it; or nothing, and why.
  struct Step {
    std::optional<Batch> batch;
    std::int64_t samples = 0;
    std::exception_ptr failure;
    std::vector<BadSample> bad = {};
  };

  DataLoader(DatasetRef dataset, std::shared_ptr<Sampler> sampler, BatchPlan plan,
             LoaderOptions options);
  HowOrdered how_ordered() const;
  ShardOptions shard_options(std::int64_t epoch, std::int64_t consumed) const;
  // Of a plan or a way: a place in an epoch is a number of this rank's batches.
  bool by_batches() const { return plan_ || options_.way != Way::samples; }
  std::int64_t count_planned(std::int64_t epoch) const;
  Deal deal_of_options() const;
  Dealt dealt_now(std::int64_t batches) const;
  std::span<const Dealt> dealt_before(std::int64_t epoch) const;
  PlannedBatches planned(std::int64_t epoch) const;
  // The batches of the coming epoch, whole, and how many of them are over.
  std::pair<PlannedBatches, std::int64_t> whole(std::int64_t epoch) const;
  std::int64_t bad_so_far() const { return bad_before_ + std::ssize(bad_samples_); }
  // An epoch is open, or an error left it.
  bool within() const { return epoch_ || failure_; }
  Place place() const { return options_.shard.value_or(Place{}); }
  std::int64_t coming() const {
    return sampler_ ? sampler_->epoch().value_or(next_epoch_) : next_epoch_;
  }
  void begin_anew();
  void open();
  Step fetch();
  Step fetch_ahead();
  void note_bad(Step& step);
  void advance();

  DatasetRef dataset_;
  std::shared_ptr<Sampler> sampler_;  // or
  BatchPlan plan_;                    // or neither
  LoaderOptions options_;
  std::uint64_t seed_ = 0;

  std::int64_t next_epoch_ = 0, next_consumed_ = 0;  // of the epoch to come
  // With a way: what other worlds were dealt of that epoch, where it was taken up.
  std::int64_t taken_up_ = 0;
  std::vector<Dealt> dealt_before_;
  std::int64_t running_ = 0, begun_at_ = 0;  // of the epoch that is open
  std::int64_t first_batch_ = 0;             // of it
  std::unique_ptr<Prefetch> epoch_;          // null: the next call of next() opens one
  std::int64_t batches_ = 0;
  std::exception_ptr failure_;
  std::int64_t taken_ = 0, batches_taken_ = 0, last_taken_ = 0;  // handed out; in the last batch
  std::unique_ptr<CopyAhead> copies_;                            // null on the CPU
  std::optional<Step> ahead_;  // what copies_ has in hand; its batch is there
  std::vector<BadSample> bad_samples_;
  std::int64_t bad_epoch_ = 0, bad_before_ = 0;  // theirs; more of them, of a state that was loaded
  std::optional<Batch> current_;                 // what the iterator points to
};

}  // namespace peal::data
