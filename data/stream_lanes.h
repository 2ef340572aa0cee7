// SPDX-License-Identifier: Apache-2.0
// The lanes of a StreamLoader's epoch: each reads some parts of a stream, one after the other, in
// batches, and the lanes take turns. Worker w makes the batches of lanes w, w + workers, ..., at
// most `prefetch` ahead in each, so what comes does not depend on how many they are.
// Thread safety: next() and has_next() are one thread's.
#pragma once

#include <peal/data/stream_dataset.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace peal::data {

// How far a part was read.
struct PartTaken {
  std::int64_t part = 0, samples = 0;
};
inline constexpr std::int64_t whole_part = INT64_MAX;

struct LaneOptions {
  std::int64_t batch_size = 1;
  int workers = 0;
  int prefetch = 2;
  bool drop_last = false;
  std::int64_t max_bad_samples = 0;
};

class StreamLanes {
 public:
  // Lane i reads lanes[i], each part from where it was left; `turn` is the lane that comes first.
  // REQUIRES: at least one lane; the set lives as long.
  StreamLanes(const StreamDataset& dataset, std::vector<std::vector<PartTaken>> lanes, int turn,
              const Draws& draws, const LaneOptions& options);
  // Waits for no more than the batches that workers have in hand.
  ~StreamLanes();
  StreamLanes(const StreamLanes&) = delete;
  StreamLanes& operator=(const StreamLanes&) = delete;

  struct Made {
    Batch batch;
    std::int64_t samples = 0;
    std::vector<PartTaken> taken;  // afterwards, of the parts that it is from
    std::vector<PassedOver> bad = {};
  };
  // The next batch, nothing at the end, or the error that making it threw, which names the sample.
  std::optional<Made> next();
  // Whether there is one, or an error; waits until it is known.
  bool has_next();
  // What was passed over behind the last batch of a lane.
  std::vector<PassedOver> take_bad_ends();
  // The lane that comes next.
  int turn() const { return turn_; }

 private:
  struct Lane {
    std::vector<PartTaken> parts;
    std::size_t at = 0;  // of parts
    StreamDataset::Reader reader = nullptr;
    // What is made of it. The last one has no batch, and maybe an error.
    std::deque<Made> made = {};
    std::exception_ptr error = nullptr;
    bool ended = false;
  };

  [[noreturn]] void throw_bad(const PassedOver& bad) const;
  std::optional<Made> make(Lane& lane) const;
  void make_ahead(Lane& lane);
  bool find_next(std::unique_lock<std::mutex>& lock);
  void work(std::size_t worker);
  void stop();

  const StreamDataset& dataset_;
  const Draws draws_;
  const LaneOptions options_;
  std::mutex mutex_;                     // what is made, of each lane
  std::condition_variable made_, room_;  // a lane has another batch; less than it may have
  std::vector<Lane> lanes_;
  int turn_;
  std::vector<PassedOver> bad_ends_;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace peal::data
