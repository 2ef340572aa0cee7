// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/failure_words.h>
#include <peal/data/stream_lanes.h>

#include <algorithm>
#include <utility>

namespace peal::data {

StreamLanes::StreamLanes(const StreamDataset& dataset, std::vector<std::vector<PartTaken>> lanes,
                         int turn, const Draws& draws, const LaneOptions& options)
    : dataset_(dataset), draws_(draws), options_(options), turn_(turn) {
  for (auto& parts : lanes) lanes_.push_back({.parts = std::move(parts)});
  try {
    for (int i = 0; i < options_.workers; ++i) {
      threads_.emplace_back(with_context([this, i] { work(static_cast<std::size_t>(i)); }));
    }
  } catch (...) {  // the system has no thread left
    stop();
    throw;
  }
}

StreamLanes::~StreamLanes() { stop(); }

// Called while its error is handled.
void StreamLanes::throw_bad(const PassedOver& bad) const {
  std::throw_with_nested(Error(concat(
      "[data] sample ", bad.sample, " of part ", bad.part, " (epoch ", draws_.epoch, "): ", bad.why,
      options_.max_bad_samples > 0
          ? concat("; max_bad_samples lets ", options_.max_bad_samples, " be in an epoch")
          : std::string())));
}

std::optional<StreamLanes::Made> StreamLanes::make(Lane& lane) const {
  std::vector<Batch> samples;
  Made made;
  const auto note = [&](const PartTaken& taken) {
    if (made.taken.empty() || made.taken.back().part != taken.part) {
      made.taken.push_back(taken);
    } else {
      made.taken.back() = taken;
    }
  };
  while (std::ssize(samples) < options_.batch_size && lane.at < lane.parts.size()) {
    PartTaken& part = lane.parts[lane.at];
    try {
      if (!lane.reader) lane.reader = dataset_.read(part.part, part.samples, draws_);
      if (auto sample = lane.reader()) {
        samples.push_back(std::move(*sample));
        ++part.samples;
      } else {
        lane.reader = nullptr;
        part.samples = whole_part;
        ++lane.at;
      }
    } catch (const BadStreamSample& failure) {
      made.bad.push_back({part.part, part.samples, failure.what()});
      ++part.samples;
      if (std::ssize(made.bad) > options_.max_bad_samples) throw_bad(made.bad.back());
    } catch (const std::exception& failure) {
      if (ran_out_of_memory()) throw;
      std::throw_with_nested(Error(concat("[data] sample ", part.samples, " of part ", part.part,
                                          " (epoch ", draws_.epoch, "): ", failure.what())));
    }
    note(part);
  }
  const bool short_batch = std::ssize(samples) < options_.batch_size;
  if (samples.empty() || (options_.drop_last && short_batch)) {
    return made.bad.empty() ? std::nullopt : std::optional(std::move(made));  // what was bad
  }
  made.samples = std::ssize(samples);
  made.batch = dataset_.collate(samples);
  return made;
}

// Of this lane's thread.
void StreamLanes::make_ahead(Lane& lane) {
  std::optional<Made> made;
  std::exception_ptr error;
  try {
    made = make(lane);
  } catch (...) {
    error = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  lane.error = error;
  lane.ended = !made;
  if (made) lane.made.push_back(std::move(*made));
}

// The lane whose batch or error is next has the turn; false where there is none.
bool StreamLanes::find_next(std::unique_lock<std::mutex>& lock) {
  for (std::size_t ended = 0; ended < lanes_.size(); ++ended) {
    Lane& lane = lanes_[static_cast<std::size_t>(turn_)];
    while (lane.made.empty() && !lane.ended) {
      if (threads_.empty()) {
        lock.unlock();
        make_ahead(lane);
        lock.lock();
      } else {
        made_.wait(lock);
      }
    }
    if (!lane.made.empty() && lane.made.front().samples == 0) {  // it has bad ones alone
      auto& bad = lane.made.front().bad;
      bad_ends_.insert(bad_ends_.end(), bad.begin(), bad.end());
      lane.made.pop_front();
      room_.notify_all();
      --ended;  // once more
      continue;
    }
    if (!lane.made.empty() || lane.error) return true;
    turn_ = (turn_ + 1) % static_cast<int>(lanes_.size());
  }
  return false;
}

std::vector<PassedOver> StreamLanes::take_bad_ends() {
  const std::lock_guard lock(mutex_);
  return std::exchange(bad_ends_, {});
}

bool StreamLanes::has_next() {
  std::unique_lock lock(mutex_);
  return find_next(lock);
}

std::optional<StreamLanes::Made> StreamLanes::next() {
  std::unique_lock lock(mutex_);
  if (!find_next(lock)) return std::nullopt;
  Lane& lane = lanes_[static_cast<std::size_t>(turn_)];
  if (lane.made.empty()) std::rethrow_exception(lane.error);
  Made made = std::move(lane.made.front());
  lane.made.pop_front();
  turn_ = (turn_ + 1) % static_cast<int>(lanes_.size());
  lock.unlock();
  room_.notify_all();
  return made;
}

void StreamLanes::work(std::size_t worker) {
  const auto step = static_cast<std::size_t>(options_.workers);
  const auto wanting = [&]() -> Lane* {  // the emptiest of its lanes that has room
    Lane* found = nullptr;
    for (std::size_t i = worker; i < lanes_.size(); i += step) {
      Lane& lane = lanes_[i];
      if (lane.ended || std::ssize(lane.made) >= options_.prefetch) continue;
      if (found == nullptr || lane.made.size() < found->made.size()) found = &lane;
    }
    return found;
  };
  std::unique_lock lock(mutex_);
  while (true) {
    Lane* lane = nullptr;
    room_.wait(lock, [&] { return stopped_ || (lane = wanting()) != nullptr; });
    if (stopped_) return;
    lock.unlock();
    make_ahead(*lane);
    made_.notify_one();
    lock.lock();
  }
}

void StreamLanes::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  room_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace peal::data
