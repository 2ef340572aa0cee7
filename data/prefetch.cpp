// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/failure_words.h>
#include <peal/data/prefetch.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace peal::data {
namespace {

Tensor in_pinned_memory(const Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const Tensor pinned = Tensor::pinned(tensor.shape(), tensor.dtype());
  pinned.copy_(tensor);
  return pinned;
}

}  // namespace

Prefetch::Prefetch(const Dataset& dataset, PlannedBatches plan, const Draws& draws,
                   const PrefetchOptions& options)
    : dataset_(dataset),
      plan_(std::move(plan)),
      draws_(draws),
      options_(options),
      started_(options.first),
      handed_out_(options.first) {
  const auto workers = std::min<std::int64_t>(options.workers, batches() - options.first);
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

Prefetch::~Prefetch() { stop(); }

std::optional<Prefetch::Made> Prefetch::next() {
  if (handed_out_ == batches()) return std::nullopt;
  if (slots_.empty()) return make(handed_out_++);
  std::unique_lock lock(mutex_);
  Slot& slot = slot_of(handed_out_);
  ready_.wait(lock, [&] { return slot.ready; });
  Slot taken = std::exchange(slot, {});
  ++handed_out_;
  lock.unlock();
  room_.notify_one();
  if (taken.error) std::rethrow_exception(taken.error);
  return std::move(taken.made);
}

Prefetch::Made Prefetch::make(std::int64_t batch) const {
  std::vector<std::int64_t> samples = plan_[batch];
  Made made{{}, std::ssize(samples), {}};
  const std::int64_t most = options_.max_bad_samples;
  bool done = false;
  try {
    made.batch = dataset_.augmented(samples, draws_);
    done = true;
  } catch (...) {
    if (ran_out_of_memory()) throw;
    if (most > 0) made.bad = replace_bad(dataset_, plan_, batch, samples, draws_, most);
  }
  if (std::ssize(made.bad) > most) return made;  // an error, to its reader
  // Once more: with others in their places, or because the failure may have passed.
  if (!done) {
    try {
      made.batch = dataset_.augmented(samples, draws_);
    } catch (...) {
      if (ran_out_of_memory()) throw;
      name_the_sample(dataset_, batch, samples, draws_);
    }
  }
  if (!options_.pinned) return made;
  made.batch.x = in_pinned_memory(made.batch.x);
  made.batch.y = in_pinned_memory(made.batch.y);
  for (auto& [name, tensor] : made.batch.more) tensor = in_pinned_memory(tensor);
  return made;
}

void Prefetch::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    room_.wait(lock, [&] {
      return stopped_ || started_ == batches() || started_ < handed_out_ + std::ssize(slots_);
    });
    if (stopped_ || started_ == batches()) return;
    const std::int64_t batch = started_++;
    lock.unlock();
    Slot made{.ready = true, .made = {}, .error = nullptr};
    try {
      made.made = make(batch);
    } catch (...) {
      made.error = std::current_exception();
    }
    lock.lock();
    slot_of(batch) = std::move(made);
    if (batch == handed_out_) ready_.notify_one();
  }
}

void Prefetch::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  room_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace peal::data
