// SPDX-License-Identifier: Apache-2.0
// Measure: times one test, and checks what it computes. Iterations run one after the other without
// a barrier, each on the next place, as long as places are fresh (Rewrite); the clock stands while
// buffers are written and results checked. Thread safety: one thread.
#pragma once

#include <peal/bench/perf/buffers.h>
#include <peal/bench/perf/options.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace peal::bench {

// What a test came to; the same on all ranks but for `own`.
struct Result {
  double seconds = 0, cpu_seconds = 0;  // of a call, over ranks as -a says
  bool checked = false;
  std::int64_t wrong = 0;  // elements, over all ranks
  int bad_ranks = 0;
  // Seconds of a call, for each iteration: of the slowest rank, and by rank.
  std::vector<double> iterations;
  std::vector<std::vector<double>> by_rank;
};

using Caller = std::function<comm::Work(const Place& place)>;

class Measurement {
 public:
  // `each`: iterations are timed one by one as well.
  Measurement(const comm::ProcessGroup& group, const Options& options, Buffers& buffers,
              const Case& test, Caller call, bool each);

  // Untimed calls.
  void warm_up(int calls);
  // So many timed iterations, several times if need be.
  void run(int iterations);
  // Runs the checks that are no part of the timing, and puts the ranks' numbers together.
  Result result();

 private:
  class Marks;
  void iterate(int iterations);
  void together(const std::vector<Place>& places, std::size_t& at);
  void fill(std::int64_t first, std::int64_t calls);
  void check(std::int64_t first, std::int64_t calls);
  void call_once(std::int64_t number);
  void sync() const;

  const comm::ProcessGroup& group_;
  const Options& options_;
  Buffers& buffers_;
  Case test_;
  Caller call_;
  bool each_;
  Values values_;
  bool repeats_;           // a call may be made again on what it left
  std::int64_t next_ = 0;  // call
  int filling_ = 0, done_ = 0;
  double seconds_ = 0, cpu_seconds_ = 0;
  std::int64_t wrong_ = 0;
  std::vector<double> iterations_;
  std::vector<comm::Work> works_;
};

// Over ranks, the same on all of them.
double over_ranks(const comm::ProcessGroup& group, double mine, int average);

}  // namespace peal::bench
