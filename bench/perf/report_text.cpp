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

void print_titles(const Options& options) {
  const char* label = options.timestamps ? "timestamp" : "";
  const char* format = options.timestamps ? time_format : "";
  const int pad = options.timestamps ? 19 : 0;
  const char* time = options.cpu_time ? "cputime" : "time";
  std::printf("#\n");
  if (options.each_iteration) {
    std::printf(
        "# %10s  %12s  %8s  %6s  %6s              out-of-place (+ per-iteration)           "
        "                     in-place (+ per-iteration)\n",
        "", "", "", "", "");
    std::printf("# %10s  %12s  %8s  %6s  %6s", "size", "count", "type", "redop", "root");
    for (int half = 0; half < 2; ++half) {
      std::printf("  %7s  %6s  %6s  %6s  %7s  %7s  %7s  %7s", time, "algbw", "busbw", "#wrong",
                  "i_min", "i_max", "i_p99", "i_cv%");
    }
    std::printf(" %*s\n# %10s  %12s  %8s  %6s  %6s", pad, label, "(B)", "(elements)", "", "", "");
    for (int half = 0; half < 2; ++half) {
      std::printf("  %7s  %6s  %6s  %6s  %7s  %7s  %7s  %7s", "(us)", "(GB/s)", "(GB/s)", "",
                  "(us)", "(us)", "(us)", "(%)");
    }
    std::printf(" %*s\n", pad, format);
    return;
  }
  std::printf(
      "# %10s  %12s  %8s  %6s  %6s           out-of-place                       in-place  "
      "        \n",
      "", "", "", "", "");
  std::printf("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s %*s\n", "size",
              "count", "type", "redop", "root", time, "algbw", "busbw", "#wrong", time, "algbw",
              "busbw", "#wrong", pad, label);
  std::printf("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s %*s\n", "(B)",
              "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)",
              "", pad, format);
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
    std::printf("# by %s\n", row.algorithm.empty() ? "choice" : row.algorithm.c_str());
  }
  std::printf("%12li  %12li  %8s  %6s  %6i", li(row.bytes), li(row.count),
              std::string(row.type).c_str(), std::string(row.op).c_str(), row.root);
  print_half(options, row.out_of_place);
  print_half(options, row.in_place);
  if (options.timestamps) std::printf("%21s", now_text().c_str());
  std::printf("\n");
  std::fflush(stdout);
}

void print_foot(const Options& options, const Summary& summary) {
  std::printf("# %-20s : %d %s\n", "Out of bounds values", summary.bad,
              summary.bad != 0 ? "FAILED" : "OK");
  std::printf("# %-20s : %g %s\n", "Avg bus bandwidth", summary.rate,
              summary.least_rate == -1 ? "" : (summary.too_slow() ? "FAILED" : "OK"));
  std::printf("#\n# Collective test concluded: %s\n#\n\n", options.program.c_str());
  std::fflush(stdout);
}

}  // namespace peal::bench
