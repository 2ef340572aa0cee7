// SPDX-License-Identifier: Apache-2.0
// Reports: what was measured, as nccl-tests 2.19 writes it. The table has its thirteen words a row,
// in its widths, with its lines before and behind, because programs read them by place; so no line
// of ours has the words by which those find theirs. Thread safety: rank 0's main thread.
#pragma once

#include <peal/bench/perf/measure.h>
#include <peal/launch/job.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace peal::bench {

// Which rank is where.
struct RankLine {
  int rank, pid, device;
  std::string host, name;  // of the device
};
// Collective.
std::vector<RankLine> rank_lines(const launch::Job& job, Device device);

// One half of a row.
struct Half {
  Result result;
  std::string algorithm;                    // the group's choice may differ between the halves
  double algorithm_rate = 0, bus_rate = 0;  // 1e9 bytes a second
  std::optional<double> efficiency{};       // of what the memory lets through at most
};
struct Row {
  std::int64_t bytes, count;
  std::string_view type, op;
  int root;
  std::string algorithm;
  bool chosen;  // by the group
  Half out_of_place, in_place;
  // Bytes that the busiest rank sends or reaches for, what the model says in place, and what the
  // memory passes.
  std::optional<double> wire_bytes{}, model_seconds{}, memory_rate{};
};

struct Summary {
  int bad = 0;  // tests with wrong values, counted on each rank
  double rate = 0;
  double least_rate = -1;  // that was asked for; -1: none was
  bool too_slow() const { return least_rate != -1 && rate < least_rate * 0.9; }
};

// Statistics of iterations, as -I's columns have them; seconds.
struct Spread {
  double least, most, mean, p50, p95, p99, deviation;
  double percent() const { return mean > 0 ? deviation / mean * 100 : 0; }
};
Spread spread(const std::vector<double>& seconds, int skipped);

void print_head(const Options& options, const std::vector<RankLine>& ranks);
void print_row(const Options& options, const Row& row);
// Bytes of the rank that has most, for -M.
struct MemoryUse {
  std::int64_t start, buffers, calls;
};
void print_foot(const Options& options, const Summary& summary, const MemoryUse& memory);

// `value` in so many letters, with as many decimals as fit.
std::string in_width(double value, int width);
std::string now_text();

}  // namespace peal::bench
