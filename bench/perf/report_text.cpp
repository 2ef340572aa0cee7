// SPDX-License-Identifier: Apache-2.0
// The lines of the table are nccl-tests' own formats.
#include <peal/autograd/core/device.h>
#include <peal/bench/perf/report.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <sstream>

namespace peal::bench {
namespace {

constexpr const char* time_format = "%Y-%m-%d %H:%M:%S";

long li(std::int64_t value) { return static_cast<long>(value); }

void print_half(const Options& options, const Half& half) {
  const double us = (options.cpu_time ? half.result.cpu_seconds : half.result.seconds) * 1e6;
  std::printf("  %7s  %6s  %6s", in_width(us, 7).c_str(), in_width(half.algorithm_rate, 6).c_str(),
              in_width(half.bus_rate, 6).c_str());
  if (half.result.checked) {
    std::printf("  %6g", static_cast<double>(half.result.wrong));
  } else {
    std::printf("    N/A");
  }
  if (!options.each_iteration) return;
  const Spread s = spread(half.result.iterations, options.skipped);
  for (const double value : {s.least * 1e6, s.most * 1e6, s.p99 * 1e6, s.percent()}) {
    std::printf("  %7s", in_width(value, 7).c_str());
  }
}

// A number, or what stands for none: no column is ever empty.
std::string or_none(const std::optional<double>& value, int width) {
  return value ? in_width(*value, width) : "N/A";
}

void print_columns(const Options& options, const Row& row) {
  const auto scaled = [](std::optional<double> value, double factor) {
    return value ? std::optional(*value * factor) : value;
  };
  std::printf("  %20s  %10s  %9s", row.algorithm.c_str(),
              row.wire_bytes ? std::to_string(std::llround(*row.wire_bytes)).c_str() : "N/A",
              or_none(scaled(row.model_seconds, 1e6), 9).c_str());
  for (const Half* half : {&row.out_of_place, &row.in_place}) {
    const Spread s = spread(half->result.iterations, options.skipped);
    std::printf("  %6s  %7s  %7s", or_none(scaled(half->efficiency, 100), 6).c_str(),
                in_width(s.p50 * 1e6, 7).c_str(), in_width(s.p99 * 1e6, 7).c_str());
  }
}

void print_column_titles(const Options& options, bool units) {
  if (!options.columns) return;
  std::printf("  %20s  %10s  %9s", units ? "" : "algo", units ? "(B)" : "wire",
              units ? "(us)" : "model_us");
  for (int half = 0; half < 2; ++half) {
    std::printf("  %6s  %7s  %7s", units ? "(%)" : "eff%", units ? "(us)" : "p50",
                units ? "(us)" : "p99");
  }
}

void print_titles(const Options& options) {
  const bool each = options.each_iteration;
  std::printf("#\n# %10s  %12s  %8s  %6s  %6s%s\n", "", "", "", "", "",
              each ? "              out-of-place (+ per-iteration)                                "
                     "in-place (+ per-iteration)"
                   : "           out-of-place                       in-place          ");
  const char* const front[2][5] = {{"size", "count", "type", "redop", "root"},
                                   {"(B)", "(elements)", "", "", ""}};
  const char* const half[2][8] = {{options.cpu_time ? "cputime" : "time", "algbw", "busbw",
                                   "#wrong", "i_min", "i_max", "i_p99", "i_cv%"},
                                  {"(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)", "(us)", "(%)"}};
  for (const bool units : {false, true}) {
    const auto& f = front[units ? 1 : 0];
    const auto& h = half[units ? 1 : 0];
    std::printf("# %10s  %12s  %8s  %6s  %6s", f[0], f[1], f[2], f[3], f[4]);
    for (int place = 0; place < 2; ++place) {
      std::printf("  %7s  %6s  %6s  %6s", h[0], h[1], h[2], h[3]);
      if (each) std::printf("  %7s  %7s  %7s  %7s", h[4], h[5], h[6], h[7]);
    }
    print_column_titles(options, units);
    std::printf(" %*s\n", options.timestamps ? 19 : 0,
                !options.timestamps ? ""
                : units             ? time_format
                                    : "timestamp");
  }
}

}  // namespace

std::string in_width(double value, int width) {
  char text[64];
  for (const char* format : {"%*.2f", "%*.1f", "%*.0f"}) {
    if (std::snprintf(text, sizeof text, format, width, value) <= width) return text;
  }
  std::snprintf(text, static_cast<std::size_t>(width) + 1, width >= 7 ? "%*.1e" : "%*.0e", width,
                value);
  return text;
}

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[64];
  std::strftime(text, sizeof text, time_format, &parts);
  return text;
}

Spread spread(const std::vector<double>& seconds, int skipped) {
  std::vector<double> sorted(seconds.begin() + skipped, seconds.end());
  std::ranges::sort(sorted);
  const std::size_t n = sorted.size();
  const auto percentile = [&](std::size_t percent) {
    return sorted[std::min(n - 1, (n * percent + 99) / 100 - 1)];
  };
  double sum = 0, squares = 0;
  for (const double value : sorted) sum += value;
  const double mean = sum / double(n);
  for (const double value : sorted) squares += (value - mean) * (value - mean);
  return {sorted.front(),
          sorted.back(),
          mean,
          sorted[n / 2],
          percentile(95),
          percentile(99),
          std::sqrt(squares / double(n))};
}

std::vector<RankLine> rank_lines(const launch::Job& job, Device device) {
  char host[256] = "unknown";
  gethostname(host, sizeof host - 1);
  const bool cpu = device.type == DeviceType::cpu;
  const std::string name = cpu ? "CPU" : describe(device).name;
  std::ostringstream mine;
  mine << getpid() << ' ' << (cpu ? job.where().local_rank : device.index) << ' ' << host << ' '
       << name;
  std::vector<RankLine> lines;
  for (const std::string& text : job.group().all_gather_object(mine.str())) {
    RankLine line{static_cast<int>(lines.size()), 0, 0, "", ""};
    std::istringstream words(text);
    words >> line.pid >> line.device >> line.host >> std::ws;
    std::getline(words, line.name);
    lines.push_back(line);
  }
  return lines;
}

void print_head(const Options& options, const std::vector<RankLine>& ranks) {
  std::printf("# nccl-tests version 2.19.6 nccl-headers=0 nccl-library=0 (its format; by peal)\n");
  std::printf("# Collective test starting: %s\n", options.program.c_str());
  std::printf(
      "# nThread %d nGpus %d minBytes %ld maxBytes %ld step: %ld(%s) warmup iters: %d "
      "iters: %d agg iters: %d validation: %d graph: %d unalign: %d\n",
      options.threads, options.gpus, li(options.first), li(options.last),
      li(options.factor > 1 ? options.factor : options.step),
      options.factor > 1 ? "factor" : "bytes", options.warm_up, options.iterations,
      options.together, options.check, options.graphs, options.unaligned);
  if (options.blocking == 1) {
    std::printf("# Blocking Enabled: wait and barrier after each inner iteration (-m) \n");
  } else if (options.blocking == 2) {
    std::printf("# Blocking Enabled: wait after each inner iteration (-m), no barrier \n");
  } else if (options.blocking == 3) {
    std::printf(
        "# Blocking Enabled: wait and barrier after each outer iteration (-n); time "
        "excludes barrier \n");
  }
  if (options.each_iteration) {
    std::printf("# Per-Iteration Report: i_* uses max over process rows");
    if (options.skipped > 0) std::printf("; summary skips first %d iterations", options.skipped);
    std::printf(" \n");
  }
  if (options.rewrite == Rewrite::every_call) {
    std::printf("# Dirty: buffers are written before each call, which follows a barrier\n");
  } else if (options.rewrite == Rewrite::never) {
    std::printf("# Clean: buffers are written once\n");
  }
  for (const std::string& text : options.without_meaning) {
    std::printf("# Without meaning here: %s\n", text.c_str());
  }
  std::printf("#\n# Using devices\n");
  for (const RankLine& r : ranks) {
    std::printf("#  Rank %2d Group %2d Pid %6d on %10s device %2d [%04x:%02x:%02x] %s\n", r.rank, 0,
                r.pid, r.host.c_str(), r.device, 0, 0, 0, r.name.c_str());
  }
  print_titles(options);
  std::fflush(stdout);
}

void print_row(const Options& options, const Row& row) {
  if (options.all_algorithms()) {
    std::printf("# by %s%s\n", row.algorithm.c_str(), row.chosen ? ", the group's choice" : "");
  }
  std::printf("%12li  %12li  %8s  %6s  %6i", li(row.bytes), li(row.count),
              std::string(row.type).c_str(), std::string(row.op).c_str(), row.root);
  print_half(options, row.out_of_place);
  print_half(options, row.in_place);
  if (options.columns) print_columns(options, row);
  if (options.timestamps) std::printf("%21s", now_text().c_str());
  std::printf("\n");
  std::fflush(stdout);
}

namespace {

// "1.50 MB", of 1024 KB.
std::string memory_text(std::int64_t bytes) {
  auto amount = static_cast<double>(bytes);
  const char* unit = " B";
  for (const char* next : {" KB", " MB", " GB"}) {
    if (amount < 1024) break;
    amount /= 1024;
    unit = next;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.*f%s", amount < 10 ? 2 : amount < 100 ? 1 : 0, amount, unit);
  return text;
}

}  // namespace

void print_foot(const Options& options, const Summary& summary, const MemoryUse& memory) {
  std::printf("# %-20s : %d %s\n", "Out of bounds values", summary.bad,
              summary.bad != 0 ? "FAILED" : "OK");
  std::printf("# %-20s : %g %s\n", "Avg bus bandwidth", summary.rate,
              summary.least_rate == -1 ? "" : (summary.too_slow() ? "FAILED" : "OK"));
  std::printf("#\n# Collective test concluded: %s\n", options.program.c_str());
  if (options.memory) {
    std::printf("# %-20s : Initialization %s | User-Allocated %s | Collective %s | Total  %s\n",
                options.device == "cpu" ? "Memory usage" : "GPU memory usage",
                memory_text(memory.start).c_str(), memory_text(memory.buffers).c_str(),
                memory_text(memory.calls).c_str(),
                memory_text(memory.start + memory.buffers + memory.calls).c_str());
  }
  std::printf("#\n\n");
  std::fflush(stdout);
}

}  // namespace peal::bench
