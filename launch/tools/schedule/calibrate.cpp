// SPDX-License-Identifier: Apache-2.0
// peal-schedule calibrate: measures collectives between the ranks that it is started with, and
// writes the tuning file by which groups like that choose from then on.
#include <fmt/core.h>
#include <peal/autograd/core/error.h>
#include <peal/comm/group/tuning.h>
#include <peal/comm/start/threads.h>
#include <peal/launch/job.h>
#include <peal/launch/tools/schedule/collective_times.h>
#include <peal/launch/tools/schedule/commands.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace peal::launch {
namespace {

using comm::Collective, comm::Rules;

int count_nodes(const comm::ProcessGroup& group) {
  const auto& node = group.nodes().node;
  return static_cast<int>(std::set<int>(node.begin(), node.end()).size());
}

bool serves_any(const TimesAt& times) {
  return std::ranges::any_of(losses(times), [](double lost) { return std::isfinite(lost); });
}

void append(Rules& rules, const CollectiveTimes& times, bool shared) {
  std::vector<TimesAt> sizes;
  for (const TimesAt& size : times.sizes) {
    if (shared && !serves_any(without(size, times.algorithms, times.what, false))) return;
    sizes.push_back(shared ? size : without(size, times.algorithms, times.what, true));
  }
  std::vector<Rules::Rule> all = rules.all();
  for (auto& rule : quickest_rules(times.what, times.algorithms, sizes)) {
    all.push_back(std::move(rule));
  }
  rules = Rules(std::move(all));
}

double microseconds(const CollectiveTimes& times, const TimesAt& size, std::size_t kind,
                    const std::string& algorithm) {
  const auto at = std::ranges::find(times.algorithms, algorithm);
  if (at == times.algorithms.end()) return NAN;
  return size.seconds[kind][static_cast<std::size_t>(at - times.algorithms.begin())] * 1e6;
}

// What was chosen for each size, beside what is built in.
void print(const CollectiveTimes& times, const comm::Selection& chosen,
           const comm::Selection& built_in, const comm::Means& means) {
  const auto named = [](const comm::Choice& choice) {
    return choice.chunk == 0 ? std::string(choice.algorithm)
                             : concat(choice.algorithm, "/", choice.chunk);
  };
  for (const TimesAt& size : times.sizes) {
    const std::string ours = named(chosen.choose(times.what, size.bytes, means));
    const std::string usual = named(built_in.choose(times.what, size.bytes, means));
    fmt::print("{:<15} {:>9}  {:<20} {:>10.2f} {:>10.2f}", name(times.what), size.bytes, ours,
               microseconds(times, size, 0, ours), microseconds(times, size, 1, ours));
    if (usual != ours) {
      fmt::print("  {:<20} {:>10.2f} {:>10.2f}", usual, microseconds(times, size, 0, usual),
                 microseconds(times, size, 1, usual));
    }
    fmt::print("\n");
  }
}

// The tuning that the file holds, if it is one of this machine.
comm::Tuning tuning_of(const std::string& path) {
  std::error_code none;
  if (std::filesystem::exists(path, none)) {
    const std::string read = comm::read_tuning(path);
    if (!read.empty()) return comm::Tuning::parse(read.substr(read.find('\n') + 1));
  }
  return {comm::this_machine(), {}};
}

void calibrate(const comm::ProcessGroup& group, const CalibrateOptions& options) {
  const int world = group.world(), nodes = count_nodes(group);
  PEAL_CHECK(world > 1,
             "calibrate: expected two ranks or more, got 1; start it with peal-run -n 2, "
             "or give it --threads 2");
  const bool main = group.rank() == 0;
  comm::Tuning tuning;
  if (main) {  // rather now than after all has been measured
    tuning = tuning_of(options.output);
    comm::save_tuning(options.output, tuning);
  }
  CollectiveTimer timer(group, options.timing);
  comm::Tuning::Group found{std::string(group.transport()), world, nodes, {}, {}, group.crowded()};
  if (main) {
    fmt::print(
        "{} ranks, {} nodes, over {}, {}\nus of a call in memory of allocate(), and in other; then "
        "what is built in, where it is another\n{:<15} {:>9}  {:<20} {:>10} {:>10}\n",
        world, nodes, group.transport(), comm::this_machine(), "collective", "bytes", "algorithm",
        "allocate()", "other");
  }
  const comm::Selection built_in("", world, nodes, {}, group.crowded());
  for (const Collective what : comm::all_collectives) {
    const CollectiveTimes times = timer.measure(what);
    if (!main) continue;
    append(found.shared, times, true);
    append(found.messages, times, false);
    const bool shared = !found.shared.all().empty();
    const comm::Selection chosen("", world, nodes, {"measured", found.shared, found.messages},
                                 group.crowded());
    if (shared) print(times, chosen, built_in, {.shared = true, .native = options.timing.native});
    if (shared) fmt::print("by messages:\n");
    print(times, chosen, built_in, {.native = options.timing.native});
    std::fflush(stdout);
  }
  if (!main) return;
  tuning.put(std::move(found));
  comm::save_tuning(options.output, tuning);
  fmt::print("written to {}\n", options.output);
}

}  // namespace

int calibrate(CalibrateOptions options) {
  if (options.output.empty()) options.output = comm::tuning_path().path;
  PEAL_CHECK(!options.output.empty(),
             "calibrate: PEAL_TUNING says that there is no tuning file, "
             "or there is no home for it; say where it shall be with --output");
  setenv("PEAL_TUNING", "0", 1);  // what is measured now does not go by what was
  if (options.threads == 0) {
    return run_main([&](Job& job) { calibrate(job.group(), options); });
  }
  comm::run_ranks(options.threads,
                  [&](const comm::ProcessGroup& group) { calibrate(group, options); });
  return 0;
}

}  // namespace peal::launch
