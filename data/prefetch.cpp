// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/data/prefetch.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

namespace peal::data {
namespace {

// Of the exception that is handled.
std::string words_of_failure() {
  try {
    throw;
  } catch (const std::exception& failure) {
    return failure.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

// Called while a failure is handled, which so is nested in what is thrown. Samples are made one by
// one to find the one that fails.
[[noreturn]] void name_the_sample(const Dataset& dataset, std::int64_t batch,
                                  std::span<const std::int64_t> samples, const Draws& draws) {
  const std::string where = concat("batch ", batch, " of epoch ", draws.epoch);
  const std::string failure = words_of_failure();
  for (const std::int64_t sample : samples) {
    std::optional<std::string> words;
    if (samples.size() == 1) words = failure;
    try {
      if (!words) dataset.augmented(std::span(&sample, 1), draws);
    } catch (...) {
      words = words_of_failure();
    }
    if (!words) continue;
    std::throw_with_nested(Error(concat("[data] sample ", sample, " (", where, "): ", *words)));
  }
  std::throw_with_nested(
      Error(concat("[data] ", where, ", each of whose samples can be had alone: ", failure)));
}

Tensor in_pinned_memory(const Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const Tensor pinned = Tensor::pinned(tensor.shape(), tensor.dtype());
  pinned.copy_(tensor);
  return pinned;
}

}  // namespace

Prefetch::Prefetch(const Dataset& dataset, PlannedBatches plan, const Draws& draws,
                   const PrefetchOptions& options)
    : dataset_(dataset), plan_(std::move(plan)), draws_(draws), pinned_(options.pinned) {
  const auto workers = std::min<std::int64_t>(options.workers, batches());
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
  const std::vector<std::int64_t> samples = plan_[batch];
  Batch made;
  try {
    made = dataset_.augmented(samples, draws_);
  } catch (...) {
    name_the_sample(dataset_, batch, samples, draws_);
  }
  if (!pinned_) return {std::move(made), std::ssize(samples)};
  made.x = in_pinned_memory(made.x);
  made.y = in_pinned_memory(made.y);
  for (auto& [name, tensor] : made.more) tensor = in_pinned_memory(tensor);
  return {std::move(made), std::ssize(samples)};
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
