// SPDX-License-Identifier: Apache-2.0
// The loader: an epoch's samples in batches, made ahead of time by worker threads and handed out in
// order.
//
//   auto train = data::fashion_mnist(true);
//   auto sampler = std::make_shared<data::DistributedSampler>(train->size(), world, rank);
//   data::DataLoader loader(train, sampler, {.batch_size = 32, .workers = 1});
//   for (int epoch = 0; epoch < epochs; ++epoch) {
//     sampler->set_epoch(epoch);
//     for (data::Batch& batch : loader) step(batch.x, batch.y);
//   }
//
// The plan of an epoch is the sampler's indices() cut into runs of batch_size; workers take its
// batches by number, so neither their count nor their speed changes what comes out. At most workers
// · prefetch batches are in the making or waiting at any time. Invariant: batch k is handed out
// after batch k - 1, or an error instead of it. Thread safety: a loader belongs to one thread,
// which need not be the one that made it. Workers inherit the context of the thread that opens the
// epoch.
#pragma once

#include <peal/data/dataset.h>
#include <peal/data/sampler.h>

#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>

namespace peal::data {

struct LoaderOptions {
  std::int64_t batch_size = 1;
  int workers = 0;         // threads; 0: batches are made by whoever asks for them
  int prefetch = 2;        // batches ahead, a worker
  bool drop_last = false;  // leaves out a last batch of fewer than batch_size samples
};

class DataLoader {
 public:
  // Errors: no data set or sampler, batch_size or prefetch < 1, workers < 0.
  DataLoader(DatasetRef dataset, std::shared_ptr<const Sampler> sampler,
             LoaderOptions options = {});
  // Stops the workers; waits for no more than the batches they have in hand.
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  // The next batch of the epoch, or nothing at its end. The first call, and the first after an end,
  // open an epoch: they ask the sampler for its indices. Errors: those of Dataset::get, as they
  // were thrown, whichever thread threw them; after one, every call throws it again until begin()
  // opens an epoch.
  std::optional<Batch> next();

  // Batches of an epoch, by the sampler as it stands.
  std::int64_t size() const;
  // Samples handed out in the running epoch, for DistributedSampler::consumed_after().
  std::int64_t taken() const;

  // An epoch as a range. begin() opens a new one, wherever the last was left.
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
  class Epoch;
  void open();
  void advance();

  DatasetRef dataset_;
  std::shared_ptr<const Sampler> sampler_;
  LoaderOptions options_;
  std::unique_ptr<Epoch> epoch_;  // null: the next call of next() opens one
  std::exception_ptr failure_;
  std::int64_t taken_ = 0;
  std::optional<Batch> current_;  // what the iterator points to
};

}  // namespace peal::data
