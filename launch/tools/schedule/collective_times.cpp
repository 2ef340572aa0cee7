// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/algorithms/world.h>
#include <peal/launch/tools/schedule/collective_times.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

namespace peal::launch {
namespace {

using comm::Collective;
using Clock = std::chrono::steady_clock;

constexpr double infinite = std::numeric_limits<double>::infinity();
constexpr std::int64_t least_memory = std::int64_t{4} << 20;
constexpr int kinds = 2;                                     // of memory: allocate()'s, and other
constexpr double sample_time = 20e-6, turn_time = 1.5e-3;    // seconds
constexpr std::size_t least_samples = 3, most_samples = 12;  // of a turn
constexpr int looks = 8;                                     // before any is left out
constexpr double hopeless = 2;  // times as long as the best, at first sight

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double slowest(const comm::ProcessGroup& group, double mine) {
  const Tensor value = Tensor::from(std::vector<double>{mine}, {1}, Device{});
  group.all_reduce(value, comm::ReduceOp::max).wait();
  return value.item<double>();
}

bool is_in_place(Collective what) {
  return what == Collective::all_reduce || what == Collective::reduce ||
         what == Collective::broadcast;
}

double lower_quartile(std::vector<double> values) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 4);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace

bool is_one_sided(Collective what, std::string_view algorithm) {
  const comm::Entry* const entry = comm::find(what, algorithm.substr(0, algorithm.find('/')));
  return entry != nullptr && entry->one_sided;
}

TimesAt without(TimesAt times, const std::vector<std::string>& algorithms, Collective what,
                bool one_sided) {
  for (std::vector<double>& row : times.seconds) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (is_one_sided(what, algorithms[i]) == one_sided) row[i] = infinite;
    }
  }
  return times;
}

namespace {

bool stands_in(const comm::Entry& entry) {
  return std::ranges::any_of(comm::one_sided_algorithms(), [&](const comm::Entry& other) {
    return other.what == entry.what && other.otherwise == entry.name;
  });
}

}  // namespace

std::vector<std::string> algorithms_to_try(Collective what, bool native) {
  std::vector<std::string> names;
  for (const comm::Entry& entry : comm::all_algorithms()) {
    if (entry.what != what) continue;
    if (stands_in(entry)) continue;  // the one that it stands in for is tried
    names.emplace_back(entry.name);
    if (!entry.otherwise.empty()) {
      for (const int kib : {16, 32, 64}) names.push_back(concat(entry.name, "/", kib << 10));
    } else if (entry.pipelined) {
      for (const int kib : {16, 256}) names.push_back(concat(entry.name, "/", kib << 10));
    }
  }
  if (native) names.emplace_back("native");
  return names;
}

// One algorithm in one kind of memory.
struct CollectiveTimer::Run {
  comm::Problem problem;
  const std::string* algorithm;
  View in, out;  // of place 0
  std::int64_t stride, places;
  std::vector<double> samples{};
  double estimate = infinite;  // seconds of a call, the same on all ranks
};

CollectiveTimer::CollectiveTimer(const comm::ProcessGroup& group, const TimingOptions& options)
    : group_(group), options_(options) {
  const std::int64_t most = std::max(least_memory, 2 * options.bytes.back()) / f32;
  for (Tensor* const pair : {in_, out_}) {
    pair[0] = group.allocate({most});
    pair[1] = Tensor::zeros({most});
  }
}

// False where it does not serve these arguments, which is so on all ranks.
bool CollectiveTimer::call(const Run& run, std::int64_t place) {
  View in = run.in, out = run.out;
  in.at += place * run.stride;
  out.at += place * run.stride;
  const comm::Problem& problem = run.problem;
  try {
    group_
        .run(problem.what, *run.algorithm, out, in, {problem.counts.begin(), problem.counts.end()})
        .wait();
    return true;
  } catch (const Error&) {
    group_.check();  // throws where it was more than a refusal
    return false;
  }
}

// Seconds of a call, of this rank.
double CollectiveTimer::sample(const Run& run, std::int64_t calls) {
  for (const View& view : {run.in, run.out}) {
    const std::int64_t used = (calls - 1) * run.stride + view.count;
    std::memset(view.data(), 0, static_cast<std::size_t>(used * f32));
  }
  group_.barrier().wait();
  const auto start = Clock::now();
  for (std::int64_t i = 0; i < calls; ++i) call(run, i);
  return since(start) / static_cast<double>(calls);
}

void CollectiveTimer::turn(Run& run, double seconds) {
  const auto calls = static_cast<std::int64_t>(
      std::clamp(sample_time / run.estimate, 1.0, static_cast<double>(run.places)));
  const auto samples =
      static_cast<std::size_t>(seconds / (run.estimate * static_cast<double>(calls) + 5e-6));
  for (std::size_t i = 0; i < std::clamp(samples, least_samples, most_samples); ++i) {
    run.samples.push_back(sample(run, calls));
  }
}

TimesAt CollectiveTimer::measure(Collective what, const std::vector<std::string>& algorithms,
                                 std::int64_t bytes) {
  const int world = group_.world();
  const auto counts = comm::even_counts(what, world, bytes / f32);
  const comm::Problem problem{.what = what,
                              .rank = group_.rank(),
                              .world = world,
                              .root = 0,
                              .counts = counts,
                              .nodes = group_.nodes()};
  const std::int64_t given = comm::in_count(problem), got = comm::out_count(problem);
  // The same on all ranks: whole lines of the cache.
  const std::int64_t line = 16, stride = (bytes / f32 + line) / line * line;
  std::vector<std::vector<Run>> all(kinds);
  for (int kind = 0; kind < kinds; ++kind) {
    View in = (is_in_place(what) ? out_ : in_)[kind].view(), out = out_[kind].view();
    const std::int64_t places = in.count / stride;
    in.count = given;
    out.count = got;
    for (const std::string& algorithm : algorithms) {
      Run run{problem, &algorithm, in, out, stride, places};
      // The first call takes a plan and memory with it; then a look at what it is worth.
      if (call(run, 0)) {
        call(run, 0);
        double least = infinite;
        for (int i = 0; i < looks; ++i) least = std::min(least, slowest(group_, sample(run, 1)));
        run.estimate = least;
      }
      all[static_cast<std::size_t>(kind)].push_back(std::move(run));
    }
  }
  const auto table = [&](const auto& seconds) {
    TimesAt times{bytes, {}};
    for (const std::vector<Run>& runs : all) {
      std::vector<double>& row = times.seconds.emplace_back();
      for (const Run& run : runs) row.push_back(seconds(run));
    }
    return times;
  };
  const TimesAt estimates = table([](const Run& run) { return run.estimate; });
  for (const bool one_sided : {false, true}) {  // messages have their own race
    const TimesAt some = without(estimates, algorithms, what, !one_sided);
    const std::vector<double> lost = losses(some);
    const double limit = std::ranges::min(lost) + std::log(hopeless);
    for (std::size_t i = 0; i < algorithms.size(); ++i) {
      if (is_one_sided(what, algorithms[i]) != one_sided || lost[i] <= limit) continue;
      for (std::vector<Run>& runs : all) runs[i].estimate = infinite;
    }
  }
  for (int turns = 0; turns < options_.turns; ++turns) {
    for (std::vector<Run>& runs : all) {
      for (Run& run : runs) {
        if (std::isfinite(run.estimate)) turn(run, turn_time);
      }
    }
  }
  return table([&](const Run& run) {
    return run.samples.empty() ? infinite : slowest(group_, lower_quartile(run.samples));
  });
}

CollectiveTimes CollectiveTimer::measure(Collective what) {
  CollectiveTimes times{what, algorithms_to_try(what, options_.native), {}};
  if (what == Collective::barrier) {
    times.sizes.push_back(measure(what, times.algorithms, 0));
    return times;
  }
  for (const std::int64_t bytes : options_.bytes) {
    times.sizes.push_back(measure(what, times.algorithms, bytes));
  }
  return times;
}

}  // namespace peal::launch
