// SPDX-License-Identifier: Apache-2.0
// PreparedStream: what Accelerator::prepare() makes of a data::StreamLoader, whose set is a stream,
// and of a Dispatcher, of which one rank reads for all (Accelerate: a DataLoaderShard of an
// iterable, DataLoaderDispatcher). Both share out among the ranks themselves; here batches come on
// the device, and the accelerator hears which one is under way and whether it is the epoch's last.
//
//   data::StreamLoader lines(set, {.batch_size = 32, .place = job.place()});
//   auto [training, model] = accelerator.prepare(lines, net);
//   for (const data::Batch& batch : training) ...
//
// Ranks of a StreamLoader differ in the number of their batches, which nobody knows before:
// Accelerator::join_uneven_inputs(). Those of a Dispatcher have equally many.
//
// To know which batch is the last, a Dispatcher of a stream is read one batch ahead; a state is
// that of what was handed out. Thread safety: as of what was prepared.
#pragma once

#include <peal/data/stream_loader.h>
#include <peal/launch/training/accelerator/prepared_loader.h>
#include <peal/launch/training/dispatcher.h>

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace peal::launch {

struct StreamBody : LoaderBody {
  // What data::StreamLoader and Dispatcher have by these names, whose headers say it: batches and
  // epochs are counted from 0; none is the end of an epoch.
  virtual std::optional<data::Batch> next() = 0;
  virtual std::int64_t epoch() const = 0;
  virtual void set_epoch(std::int64_t epoch) = 0;
  virtual void skip_first_batches(std::int64_t count) = 0;
  virtual NamedTensors state_dict() const = 0;
  virtual void load_state_dict(const NamedTensors& state) = 0;
  virtual void consolidate_state_dict(const comm::ProcessGroup&) {}
  // What is wrong with it on this rank, if anything is.
  virtual std::string wrong(Place) const { return {}; }

  std::optional<Device> device;  // none: batches stay where they are
};

// REQUIRES: it outlives what is returned.
std::shared_ptr<StreamBody> stream_of(data::StreamLoader& loader);
std::shared_ptr<StreamBody> stream_of(Dispatcher& dispatcher);

class PreparedStream {
 public:
  // Accelerator::prepare() makes it.
  PreparedStream(std::shared_ptr<StreamBody> body, std::shared_ptr<GradientState> state)
      : body_(std::move(body)), state_(std::move(state)) {}

  // The next batch of the epoch, or nothing at its end, after which the next call begins another.
  std::optional<data::Batch> next();
  // What is left of the epoch, as a range.
  class Iterator;
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

  // The epoch under way, from 0; the next to be begun; and how many batches of it to leave out.
  std::int64_t epoch() const { return body_->epoch(); }
  void set_epoch(std::int64_t epoch);
  void skip_first_batches(std::int64_t count) { body_->skip_first_batches(count); }
  // As of what was prepared. Of a StreamLoader the place of all ranks, after
  // consolidate_state_dict(), which is collective.
  NamedTensors state_dict() const { return body_->state_dict(); }
  void load_state_dict(const NamedTensors& state);
  void consolidate_state_dict(int to = 0);
  // What all handles of it share.
  const std::shared_ptr<StreamBody>& body() const { return body_; }
  // Whether there is another of these than this one.
  bool is_held() const { return body_.use_count() > 1; }

 private:
  std::shared_ptr<StreamBody> body_;
  std::shared_ptr<GradientState> state_;
};

class PreparedStream::Iterator {
 public:
  // begin() makes it, at the batch that comes next.
  explicit Iterator(PreparedStream of) : of_(std::move(of)), at_(of_.next()) {}
  Iterator(const Iterator&) = delete;
  Iterator& operator=(const Iterator&) = delete;
  ~Iterator();
  data::Batch& operator*() { return *at_; }
  const data::Batch& operator*() const { return *at_; }
  data::Batch* operator->() { return &*at_; }
  Iterator& operator++() {
    at_ = of_.next();
    return *this;
  }
  void operator++(int) { ++*this; }
  bool operator==(std::default_sentinel_t) const { return !at_; }

 private:
  PreparedStream of_;
  std::optional<data::Batch> at_;
};

}  // namespace peal::launch
