// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/trace.h>
#include <peal/data/loader.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace peal::data {
namespace {

std::int64_t batches_of(std::int64_t samples, const LoaderOptions& options) {
  return (samples + (options.drop_last ? 0 : options.batch_size - 1)) / options.batch_size;
}

}  // namespace

// One pass over the plan. Batch k waits in slot k % slots: a worker starts batch k only once batch
// k - slots has been handed out, which bounds the memory and keeps the order. One lock guards
// everything but the plan, which nobody writes.
class DataLoader::Epoch {
 public:
  Epoch(const Dataset& dataset, std::vector<std::int64_t> plan, const LoaderOptions& options)
      : dataset_(dataset),
        plan_(std::move(plan)),
        batch_size_(options.batch_size),
        batches_(batches_of(std::ssize(plan_), options)) {
    const auto workers = std::min<std::int64_t>(options.workers, batches_);
    slots_.resize(static_cast<std::size_t>(workers * options.prefetch));
    try {
      for (std::int64_t i = 0; i < workers; ++i) {
        threads_.emplace_back(with_context([this] { work(); }));
      }
    } catch (...) {  // the system has no thread left
      stop();
      throw;
    }
  }
  ~Epoch() { stop(); }
  Epoch(const Epoch&) = delete;
  Epoch& operator=(const Epoch&) = delete;

  // The next batch, nothing at the end, or the error that making it threw.
  std::optional<Batch> next() {
    if (handed_out_ == batches_) return std::nullopt;
    if (slots_.empty()) return make(handed_out_++);
    std::unique_lock lock(mutex_);
    Slot& slot = slot_of(handed_out_);
    ready_.wait(lock, [&] { return slot.ready; });
    const Slot taken = std::exchange(slot, {});
    ++handed_out_;
    lock.unlock();
    room_.notify_one();
    if (taken.error) std::rethrow_exception(taken.error);
    return taken.batch;
  }

 private:
  struct Slot {
    bool ready = false;
    Batch batch;
    std::exception_ptr error;
  };

  Slot& slot_of(std::int64_t batch) {
    return slots_[static_cast<std::size_t>(batch) % slots_.size()];
  }

  Batch make(std::int64_t batch) const {
    const std::span<const std::int64_t> plan(plan_);
    const std::int64_t at = batch * batch_size_;
    const std::int64_t count = std::min(batch_size_, std::ssize(plan) - at);
    return dataset_.get(
        plan.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count)));
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      room_.wait(lock, [&] {
        return stopped_ || started_ == batches_ || started_ < handed_out_ + std::ssize(slots_);
      });
      if (stopped_ || started_ == batches_) return;
      const std::int64_t batch = started_++;
      lock.unlock();
      Slot made{.ready = true, .batch = {}, .error = nullptr};
      try {
        made.batch = make(batch);
      } catch (...) {
        made.error = std::current_exception();
      }
      lock.lock();
      slot_of(batch) = std::move(made);
      if (batch == handed_out_) ready_.notify_one();
    }
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    room_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  const Dataset& dataset_;
  const std::vector<std::int64_t> plan_;
  const std::int64_t batch_size_, batches_;

  std::mutex mutex_;
  std::condition_variable ready_;  // the batch to hand out next is there
  std::condition_variable room_;   // a slot is free, or it is time to stop
  std::vector<Slot> slots_;        // none: no workers
  std::int64_t started_ = 0, handed_out_ = 0;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

DataLoader::DataLoader(DatasetRef dataset, std::shared_ptr<const Sampler> sampler,
                       LoaderOptions options)
    : dataset_(std::move(dataset)), sampler_(std::move(sampler)), options_(options) {
  PEAL_CHECK(dataset_ && sampler_, "[data] loader: expected a data set and a sampler, got none");
  PEAL_CHECK(options_.batch_size >= 1, "[data] loader: expected a batch_size of at least 1, got ",
             options_.batch_size);
  PEAL_CHECK(options_.workers >= 0, "[data] loader: expected workers to be at least 0, got ",
             options_.workers);
  PEAL_CHECK(options_.prefetch >= 1, "[data] loader: expected a prefetch of at least 1, got ",
             options_.prefetch);
}

DataLoader::~DataLoader() = default;

void DataLoader::open() {
  epoch_.reset();
  failure_ = nullptr;
  taken_ = 0;
  epoch_ = std::make_unique<Epoch>(*dataset_, sampler_->indices(), options_);
}

std::optional<Batch> DataLoader::next() {
  if (failure_) std::rethrow_exception(failure_);
  const TraceSpan span("load batch");  // how long training waits for data
  if (!epoch_) open();
  try {
    std::optional<Batch> batch = epoch_->next();
    if (batch) {
      taken_ += batch->x.size(0);
    } else {
      epoch_.reset();
    }
    return batch;
  } catch (...) {
    failure_ = std::current_exception();
    epoch_.reset();
    throw;
  }
}

std::int64_t DataLoader::size() const { return batches_of(sampler_->size(), options_); }

std::int64_t DataLoader::taken() const { return taken_; }

DataLoader::Iterator DataLoader::begin() {
  open();
  advance();
  return Iterator(this);
}

// The last batch goes first, so that its memory is there for the next ones.
void DataLoader::advance() {
  current_.reset();
  current_ = next();
}

}  // namespace peal::data
