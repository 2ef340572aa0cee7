// SPDX-License-Identifier: Apache-2.0
// Shards of a stream: of samples that come one after the other and whose number nobody knows, every
// rank reads all and keeps its own (Accelerate's IterableDatasetShard). Batch k of the stream goes
// to rank k mod world, or with `split` every batch is shared out; a stream that ends within a round
// is filled up with its first samples, so that ranks have equally many, or with `exact` ends there,
// as evaluation wants it. Where a source has parts of
// its own (files, say), reader_parts() shares those out instead, and no sample is read twice.
//
//   data::StreamShard<std::string> lines([&] { return read_line(file); },
//                                        {.batch_size = 32, .place = job.place()});
//   while (auto line = lines.next()) ...
//
// Thread safety: a StreamShard belongs to one thread; reader_parts() is a pure function.
#pragma once

#include <peal/autograd/core/error.h>
#include <peal/autograd/core/place.h>
#include <peal/autograd/core/stateful.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace peal::data {

struct StreamOptions {
  std::int64_t batch_size = 1;  // a rank; with `split`, of all ranks together
  Place place{};
  bool split = false;
  // What happens to a round that the stream does not fill. Neither: its first samples come again.
  // drop_last: it goes unseen. exact: ranks have what there is for them, and may differ in number.
  bool drop_last = false;
  bool exact = false;
};

template <class T>
class StreamShard {
 public:
  using Source = std::function<std::optional<T>()>;  // the next sample, or nothing at the end

  // Errors: no source, a place outside of its world, batch_size < 1, or with `split` one that world
  // does not divide, exact together with drop_last.
  StreamShard(Source source, const StreamOptions& options)
      : source_(std::move(source)), options_(options) {
    const auto& [batch_size, place, split, drop_last, exact] = options_;
    PEAL_CHECK(!(drop_last && exact),
               "[data] stream: exact sees every sample once, drop_last "
               "leaves some out: choose one");
    PEAL_CHECK(source_ != nullptr, "[data] stream: expected a source, got none");
    PEAL_CHECK(place.world >= 1 && place.rank >= 0 && place.rank < place.world,
               "[data] stream: expected a rank below its world, got rank ", place.rank, " of ",
               place.world);
    PEAL_CHECK(batch_size >= 1, "[data] stream: expected a batch_size of at least 1, got ",
               batch_size);
    PEAL_CHECK(!split || batch_size % place.world == 0, "[data] stream: batches of ", batch_size,
               " samples cannot be split evenly among ", place.world, " ranks");
  }

  // This rank's next sample, or nothing at the end of the stream. What the source throws passes on,
  // and the next call goes on where it threw.
  std::optional<T> next() {
    take_up();
    if (at_ == end_ && !read_round()) return std::nullopt;
    return round_[at_++];
  }

  // How many samples of the stream are in rounds that are over ("consumed"), what this rank took of
  // the one that is open ("taken", 0 after each batch that all ranks took), and how rounds are made
  // ("world" ranks, "round" samples), i64. Over a
  // source that begins again, a shard made alike goes on there; after whole rounds one of another
  // world or batch_size does, too.
  NamedTensors state_dict() const {
    const bool open = at_ < end_;
    const auto begin = static_cast<std::int64_t>(begin_of(round_.size()));
    const std::int64_t ahead = open ? of_round_ : reading_ ? std::ssize(round_) : 0;
    const std::int64_t consumed = taking_up_ ? skip_ : read_ - ahead;
    const std::int64_t taken = taking_up_ ? skip_of_round_
                               : open     ? static_cast<std::int64_t>(at_) - begin
                                          : 0;
    return {{"consumed", Tensor::scalar(consumed, Device{})},
            {"taken", Tensor::scalar(taken, Device{})},
            {"world", Tensor::scalar(std::int64_t{options_.place.world}, Device{})},
            {"round", Tensor::scalar(static_cast<std::int64_t>(size_of_round()), Device{})}};
  }
  // Reads what was consumed, and leaves it out. Errors: a shard that has read already, a stream
  // that ends before, a round that was left open in another world or batch_size. Where the source
  // throws, the next call, of next() or with the same state, goes on there.
  void load_state_dict(const NamedTensors& state) {
    StateReader reader("StreamShard", state);
    const auto consumed = reader.number<std::int64_t>("consumed");
    const auto taken = reader.number<std::int64_t>("taken");
    const auto world = reader.number<std::int64_t>("world");
    const auto round = reader.number<std::int64_t>("round");
    reader.finish();
    const bool goes_on = taking_up_ && consumed == skip_ && taken == skip_of_round_;
    PEAL_CHECK(read_ == 0 || goes_on,
               "[data] stream: a shard takes up a stream at its start, and this one has "
               "read ",
               read_, " samples");
    PEAL_CHECK(taken == 0 || (world == options_.place.world &&
                              round == static_cast<std::int64_t>(size_of_round())),
               "[data] stream: it was left within a batch, which another world or batch_size does "
               "not have; save its state after whole batches");
    skip_ = consumed;
    skip_of_round_ = taken;
    taking_up_ = true;
    take_up();
  }

 private:
  std::size_t size_of_round() const {
    const auto each = static_cast<std::size_t>(options_.batch_size);
    return options_.split ? each : each * static_cast<std::size_t>(options_.place.world);
  }
  // Of this rank, in a round that has so many samples.
  std::size_t begin_of(std::size_t samples) const {
    const auto [rank, world] = options_.place;
    return std::min(samples, static_cast<std::size_t>(rank) *
                                 (size_of_round() / static_cast<std::size_t>(world)));
  }
  bool fills() const { return !options_.drop_last && !options_.exact; }

  void take_up() {
    if (!taking_up_) return;
    while (read_ < skip_) {
      PEAL_CHECK(read(), "[data] stream: it ended after ", read_,
                 " samples, and it had been left "
                 "after ",
                 skip_);
    }
    if (skip_of_round_ > 0 && read_round()) {
      at_ = std::min(end_, at_ + static_cast<std::size_t>(skip_of_round_));
    }
    taking_up_ = false;
  }

  std::optional<T> read() {
    if (ended_) return std::nullopt;
    std::optional<T> sample = source_();
    ended_ = !sample.has_value();
    if (ended_) return sample;
    ++read_;
    if (fills() && first_.size() < size_of_round()) first_.push_back(*sample);
    return sample;
  }

  bool read_round() {
    const std::size_t size = size_of_round();
    if (!std::exchange(reading_, true)) round_.clear();  // else the source has thrown
    at_ = end_ = 0;
    while (round_.size() < size) {
      std::optional<T> sample = read();
      if (!sample) break;
      round_.push_back(std::move(*sample));
    }
    reading_ = false;
    of_round_ = std::ssize(round_);
    if (round_.empty() || (round_.size() < size && options_.drop_last)) return false;
    for (std::size_t i = 0; fills() && round_.size() < size; ++i) {
      round_.push_back(first_[i % first_.size()]);
    }
    at_ = begin_of(round_.size());
    end_ = std::min(round_.size(), at_ + size / static_cast<std::size_t>(options_.place.world));
    return at_ < end_;
  }

  Source source_;
  StreamOptions options_;
  std::vector<T> first_, round_;          // of the stream
  std::int64_t read_ = 0, of_round_ = 0;  // samples of the stream
  std::size_t at_ = 0, end_ = 0;          // of this rank, in the round
  bool ended_ = false, reading_ = false;  // a round, of which the source may have thrown some
  // Of a state that was loaded: its samples of the stream, and of this rank in the round after
  // them; and whether some of them are still to be left out, as the source has thrown.
  std::int64_t skip_ = 0, skip_of_round_ = 0;
  bool taking_up_ = false;
};

// Which parts of a source that has `parts` of them this reader reads, in order: each has one reader
// among all of the ranks' workers (no workers: the rank itself is its reader). Readers may have
// none. Errors: a place outside of its world, a worker outside of 0..max(workers, 1) - 1.
std::vector<std::int64_t> reader_parts(std::int64_t parts, Place place, int worker = 0,
                                       int workers = 0);

}  // namespace peal::data
