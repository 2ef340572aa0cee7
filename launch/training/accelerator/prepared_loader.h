// SPDX-License-Identifier: Apache-2.0
// PreparedLoader: what Accelerator::prepare() makes of a data::DataLoader (Accelerate:
// DataLoaderShard): this rank's part of the same batches, on the device, and a word to the
// accelerator which batch is under way and whether it is the epoch's last. Loops may lie in each
// other, an evaluation in a training; the loader that gave a batch last counts.
//
//   for (const data::Batch& batch : training) ...
//   while (const auto batch = training.next()) ...     // the same
//
// Thread safety: as of DataLoader.
#pragma once

#include <peal/data/loader.h>
#include <peal/launch/training/accelerator/gradient_state.h>

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace peal::launch {

// What a loop over batches is for the accelerator: of a loader, or another source of them.
struct LoaderBody {
  virtual ~LoaderBody() = default;

  std::shared_ptr<data::DataLoader> loader;
  std::int64_t nominal = 1;      // samples of a batch of this rank
  std::int64_t in_epoch = 0;     // batches of each epoch; 0: as the loader says
  std::int64_t samples = 0;      // of the batch under way
  std::shared_ptr<void> opened;  // by next()

  // Batches to come of its epoch; where it does not know how many, 1 for some.
  virtual std::int64_t left() const { return loader->left(); }
  virtual bool knows_left() const { return true; }
  virtual std::vector<std::int64_t> places() const { return loader->places(); }
};

// Until what is returned goes, that loop is the innermost with an epoch under way; `batches` is how
// many it has, where it knows that.
std::shared_ptr<void> begin_loop(const std::shared_ptr<GradientState>& state, LoaderBody* loop,
                                 std::int64_t batches);
// It has taken a batch, or there is none.
void take_turn(GradientState& state, LoaderBody& loop, const data::Batch* batch);

class PreparedLoader {
 public:
  // Accelerator::prepare() makes it.
  PreparedLoader(std::shared_ptr<LoaderBody> body, std::shared_ptr<GradientState> state)
      : body_(std::move(body)), state_(std::move(state)) {}

  // An epoch as a range, as DataLoader::begin().
  class Iterator;
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }
  // As of DataLoader.
  std::optional<data::Batch> next();
  // Batches of an epoch, also of one that begins within, after load_state() say; those to come.
  std::int64_t size() const { return body_->in_epoch > 0 ? body_->in_epoch : loader().size(); }
  std::int64_t left() const { return loader().left(); }
  bool has_next() const { return loader().has_next(); }
  std::int64_t epoch() const { return loader().epoch(); }
  void set_epoch(std::int64_t epoch);
  // Leaves out the first batches of its epoch; those that load_state(), or another call, has left
  // out are among them. By a sampler or a plan: so many of those to come. Error where it stands
  // after more.
  void skip_first_batches(std::int64_t count);
  std::vector<std::int64_t> places() const { return loader().places(); }
  const data::Dataset& dataset() const { return loader().dataset(); }
  NamedTensors state_dict() const { return loader().state_dict(); }
  void load_state_dict(const NamedTensors& state) { loader().load_state_dict(state); }
  // This rank's.
  data::DataLoader& loader() const { return *body_->loader; }
  // What all handles of it share.
  const std::shared_ptr<LoaderBody>& body() const { return body_; }
  // Whether there is another of these than this one.
  bool is_held() const { return body_.use_count() > 1; }

 private:
  std::shared_ptr<LoaderBody> body_;
  std::shared_ptr<GradientState> state_;
};

class PreparedLoader::Iterator {
 public:
  using difference_type = std::ptrdiff_t;
  using value_type = data::Batch;
  using iterator_concept = std::input_iterator_tag;

  // begin() makes it, at the first batch of the epoch. REQUIRES: the loader outlives it.
  explicit Iterator(PreparedLoader& of);
  data::Batch& operator*() const { return *at_; }
  data::Batch* operator->() const { return &*at_; }
  Iterator& operator++();
  void operator++(int) { ++*this; }
  bool operator==(std::default_sentinel_t) const { return at_ == std::default_sentinel; }

 private:
  void note();

  std::shared_ptr<LoaderBody> body_;
  std::shared_ptr<GradientState> state_;
  data::DataLoader::Iterator at_;
  std::shared_ptr<void> opened_;  // until the epoch is over, or left
};

}  // namespace peal::launch
