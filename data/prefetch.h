// SPDX-License-Identifier: Apache-2.0
// Prefetch: the batches of one epoch, made ahead of time by worker threads and handed out in order.
//
// Batch k waits in slot k % slots: a worker starts batch k only once batch k - slots has been
// handed out, which bounds the memory and keeps the order. One lock guards everything but the plan,
// which nobody writes. Thread safety: next() is one thread's.
#pragma once

#include <peal/data/bad_samples.h>
#include <peal/data/batches.h>
#include <peal/data/dataset.h>

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace peal::data {

struct PrefetchOptions {
  int workers = 0;                   // 0: batches are made by next()
  int prefetch = 2;                  // batches ahead, a worker
  bool pinned = false;               // in page-locked memory
  std::int64_t max_bad_samples = 0;  // so many of a batch are replaced (bad_samples.h)
  std::int64_t first = 0;            // the batches before it came already
};

class Prefetch {
 public:
  // `plan` is the whole epoch's. Workers inherit the context of the calling thread. REQUIRES: the
  // data set lives as long; first is at most the number of batches.
  Prefetch(const Dataset& dataset, PlannedBatches plan, const Draws& draws,
           const PrefetchOptions& options);
  // Waits for no more than the batches that workers have in hand.
  ~Prefetch();
  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;

  // A batch, how many samples the plan had in it, and those of them that others stand in for; of
  // more than max_bad_samples there is no batch.
  struct Made {
    Batch batch;
    std::int64_t samples = 0;
    std::vector<BadSample> bad;
  };
  // The next batch, nothing at the end, or the error that making it threw, which names the sample:
  // an Error with the data set's own nested in it (std::rethrow_if_nested). What passes when it is
  // tried once more is none.
  std::optional<Made> next();

 private:
  struct Slot {
    bool ready = false;
    Made made;
    std::exception_ptr error;
  };

  Slot& slot_of(std::int64_t batch) {
    return slots_[static_cast<std::size_t>(batch) % slots_.size()];
  }
  std::int64_t batches() const { return plan_.size(); }
  Made make(std::int64_t batch) const;
  void work();
  void stop();

  const Dataset& dataset_;
  const PlannedBatches plan_;
  const Draws draws_;
  const PrefetchOptions options_;

  std::mutex mutex_;
  std::condition_variable ready_;  // the batch to hand out next is there
  std::condition_variable room_;   // a slot is free, or it is time to stop
  std::vector<Slot> slots_;        // none: no workers
  std::int64_t started_ = 0, handed_out_ = 0;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace peal::data
