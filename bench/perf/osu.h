// SPDX-License-Identifier: Apache-2.0
// OSU: the same operations by the habits of OSU's micro-benchmarks 7.4, for --osu: their options,
// loops, headers and columns. Each call is timed alone, and latencies are means of a rank's calls,
// over ranks. Unlike theirs, buffers are written anew before each call, and it begins after a
// barrier (--clean: they are not). Thread safety: the main thread.
#pragma once

#include <peal/bench/perf/buffers.h>
#include <peal/launch/job.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace peal::bench {

struct OsuOptions {
  std::string program, test, type, device = "cpu";
  std::int64_t first = 1, last = 1 << 20;
  int iterations = -1, warm_up = -1;  // -1: by size, as theirs
  int root = 0, window = 64;
  bool full = false, validate = false, tails = false, clean = false;

  struct Loops {
    int warm_up, timed;
  };
  // Of messages past 8 KiB there are fewer.
  Loops loops(std::int64_t bytes, Loops small, Loops large) const;
  DType dtype() const;
};

// What a size came to, over ranks.
struct OsuLine {
  std::int64_t bytes;
  std::vector<double> columns;  // the first and, in full, those behind it
  int iterations = 0;           // in full; 0: is no column
  std::int64_t wrong = 0;
  std::vector<double> tails{};
};

int osu_main(const Operation& operation, int argc, char** argv);

// One size of a test; the same on all ranks. Collective.
using OsuTest = std::function<std::optional<OsuLine>(std::int64_t bytes)>;
// latency and overlap, of collectives.
OsuTest osu_latency(const launch::Job& job, const Operation& operation, const OsuOptions& options,
                    Device device);
OsuTest osu_overlap(const launch::Job& job, const Operation& operation, const OsuOptions& options,
                    Device device);
// latency, bw and bibw, of messages between two ranks.
OsuTest osu_messages(const launch::Job& job, const Operation& operation, const OsuOptions& options,
                     Device device);

}  // namespace peal::bench
