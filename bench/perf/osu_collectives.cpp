// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/stream.h>
#include <peal/bench/perf/measure.h>
#include <peal/bench/perf/osu.h>

#include <algorithm>
#include <chrono>
#include <memory>

namespace peal::bench {
namespace {

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// Arithmetic that touches no memory; a call, so that it stays between two looks at the clock.
[[gnu::noinline]] void compute(std::int64_t steps) {
  [[maybe_unused]] static volatile double kept;
  auto x = static_cast<double>(steps);
  for (std::int64_t i = 0; i < steps; ++i) x = x * 0.999999 + 1e-6;
  kept = x;
}

double us_of_compute(std::int64_t steps) {
  const auto start = Clock::now();
  compute(steps);
  return us_since(start);
}

// Microseconds of the parts of a call, means over the timed ones of this rank.
struct Parts {
  double whole = 0, init = 0, wait = 0;
  std::vector<double> each{};
};

class Collective {
 public:
  Collective(const launch::Job& job, const Operation& operation, const OsuOptions& options,
             Device device)
      : group_(job.group()),
        operation_(operation),
        options_(options),
        device_(device),
        values_(options.dtype(), comm::ReduceOp::sum, job.world()),
        buffers_(group_, device, most(), 0, false) {}

  std::optional<OsuLine> latency(std::int64_t bytes) {
    if (!choose(bytes)) return std::nullopt;
    const auto loops = options_.loops(bytes, {100, 1000}, {10, 100});
    const Parts parts = run(loops, 0);
    OsuLine line{.bytes = bytes, .columns = {mean(parts.whole)}};
    if (options_.full) {
      line.columns.push_back(over_ranks(group_, parts.whole, 2));
      line.columns.push_back(over_ranks(group_, parts.whole, 3));
      line.iterations = loops.timed;
    }
    finish(line, parts);
    return line;
  }

  std::optional<OsuLine> overlap(std::int64_t bytes) {
    if (!choose(bytes)) return std::nullopt;
    const auto loops = options_.loops(bytes, {100, 1000}, {10, 100});
    const double pure = run(loops, 0).whole;
    // As much arithmetic as takes as long as the call.
    constexpr std::int64_t many = 200'000;
    double rate = 0;
    for (int i = 0; i < 3; ++i) rate = std::max(rate, double(many) / us_of_compute(many));
    const auto steps = static_cast<std::int64_t>(pure * rate);
    double alone = us_of_compute(steps);
    for (int i = 0; i < 9; ++i) alone = std::min(alone, us_of_compute(steps));
    const Parts parts = run(loops, steps);
    const double overall = mean(parts.whole), computed = mean(alone), call = mean(pure);
    OsuLine line{.bytes = bytes, .columns = {overall, computed}};
    if (options_.full) {
      line.columns.insert(line.columns.end(), {mean(parts.init), 0.0, mean(parts.wait)});
    }
    line.columns.push_back(call);
    if (options_.full) {
      line.columns.push_back(over_ranks(group_, pure, 2));
      line.columns.push_back(over_ranks(group_, pure, 3));
    }
    line.columns.push_back(std::max(0.0, 100 - (overall - computed) / call * 100));
    finish(line, parts);
    return line;
  }

 private:
  std::int64_t most() const {
    const bool total = !operation_.shares || operation_.reduces;
    return options_.last * (total ? 1 : group_.world());
  }
  double mean(double mine) const { return over_ranks(group_, mine, 1); }

  // The test of a size: of a rank's share, where there are shares that are not reduced. False where
  // it has no element.
  bool choose(std::int64_t bytes) {
    const auto element = static_cast<std::int64_t>(size_of(options_.dtype()));
    const bool cut = operation_.shares && operation_.reduces;
    const std::int64_t each = bytes / element / (cut ? group_.world() : 1);
    test_ = {&operation_,
             options_.dtype(),
             comm::ReduceOp::sum,
             options_.root,
             operation_.layout(each, group_.world()),
             false};
    wrong_ = 0;
    return each > 0;
  }

  Parts run(OsuOptions::Loops loops, std::int64_t steps) {
    Parts parts;
    const Place place = buffers_.place(test_, 0);
    for (int i = -loops.warm_up; i < loops.timed; ++i) {
      if (!options_.clean || i == -loops.warm_up) {
        buffers_.fill(test_, place, values_, ++filling_);
      }
      group_.barrier().wait();
      const auto start = Clock::now();
      const comm::Work work = start_call(place);
      const double init = us_since(start);
      if (steps > 0) compute(steps);
      const auto waits = Clock::now();
      work.wait();
      synchronize(device_);
      const double waited = us_since(waits), whole = us_since(start);
      if (options_.validate) wrong_ += buffers_.wrong(test_, place, values_, filling_);
      if (i < 0) continue;
      parts.whole += whole / loops.timed;
      parts.init += init / loops.timed;
      parts.wait += waited / loops.timed;
      parts.each.push_back(whole);
    }
    return parts;
  }
  comm::Work start_call(const Place& place) const {
    return start(group_, operation_, place, false, test_.op, test_.root);
  }

  void finish(OsuLine& line, const Parts& parts) {
    const double wrong = over_ranks(group_, static_cast<double>(wrong_), 1) * group_.world();
    line.wrong = static_cast<std::int64_t>(wrong + 0.5);
    if (!options_.tails) return;
    std::vector<double> sorted = parts.each;
    std::ranges::sort(sorted);
    for (const std::size_t percent : {50u, 90u, 99u}) {
      const std::size_t at = (sorted.size() * percent + 99) / 100 - 1;
      line.tails.push_back(over_ranks(group_, sorted[at], 0));
    }
  }

  const comm::ProcessGroup& group_;
  const Operation& operation_;
  const OsuOptions& options_;
  Device device_;
  Values values_;
  Buffers buffers_;
  Case test_{};
  int filling_ = 0;
  std::int64_t wrong_ = 0;
};

}  // namespace

OsuTest osu_latency(const launch::Job& job, const Operation& operation, const OsuOptions& options,
                    Device device) {
  const auto run = std::make_shared<Collective>(job, operation, options, device);
  return [run](std::int64_t bytes) { return run->latency(bytes); };
}

OsuTest osu_overlap(const launch::Job& job, const Operation& operation, const OsuOptions& options,
                    Device device) {
  const auto run = std::make_shared<Collective>(job, operation, options, device);
  return [run](std::int64_t bytes) { return run->overlap(bytes); };
}

}  // namespace peal::bench
