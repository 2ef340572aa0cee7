// SPDX-License-Identifier: Apache-2.0
// peal-schedule trace: what ranks did under PEAL_TRACE, beside what the model says they do.
#include <fmt/core.h>
#include <peal/autograd/core/error.h>
#include <peal/comm/record/measured_run.h>
#include <peal/launch/tools/schedule/commands.h>

#include <algorithm>
#include <utility>

namespace peal::launch {
namespace {

constexpr std::size_t most_lines = 40;

using comm::MeasuredCollective;
using comm::MeasuredPart;

// Of the time that ranks spend in messages, the share in which they wait for their partners.
double waiting_share(const comm::Timeline& timeline) {
  double waits = 0, all = 0;
  for (const comm::Activity& a : timeline.activities) {
    if (comm::is_local(a.kind)) continue;
    waits += a.moves - a.begin;
    all += a.end - a.begin;
  }
  return all > 0 ? waits / all : 0;
}

void print_list(const std::vector<MeasuredCollective>& all) {
  fmt::print("{:>4} {:<20} {:>6} {:>11} {:>11} {:>7}  {}\n", "", "algorithm", "ranks", "took",
             "apart", "waited", "operation");
  for (std::size_t i = 0; i < std::min(all.size(), most_lines); ++i) {
    const MeasuredCollective& one = all[i];
    double latest = one.begin;
    for (const MeasuredPart* part : one.parts) {
      if (part != nullptr) latest = std::max(latest, part->begin);
    }
    fmt::print("{:>4} {:<20} {:>6} {:>11} {:>11} {:>6.0f}%  {}\n", i, one.first().algorithm,
               one.parts.size(), one.end > 0 ? seconds_text(one.end - one.begin) : "never ended",
               seconds_text(latest - one.begin), 100 * waiting_share(timeline(one)),
               one.first().text);
  }
  if (all.size() > most_lines) fmt::print("     and {} more\n", all.size() - most_lines);
  fmt::print(
      "took: from the first rank's begin to the last one's end. apart: from the first "
      "begin to the last.\nwaited: the share of the time in messages before both sides "
      "were ready.\n");
}

// What ranks had begun and not ended, of a run that failed.
void print_unfinished(const comm::MeasuredRun& run) {
  for (const MeasuredPart& part : run.parts) {
    if (part.ended()) continue;
    fmt::print("rank {} never ended {}", part.rank, part.text);
    for (const comm::MeasuredStep& s : part.steps) {
      if (s.times.end != 0 || comm::is_local(s.step.kind)) continue;
      fmt::print("; round {}: {} {} {}", s.times.round, name(s.step.kind),
                 s.step.kind == comm::Kind::send ? "to" : "from",
                 s.step.peer == comm::nobody
                     ? "any rank"
                     : fmt::format("rank {}", part.group[static_cast<std::size_t>(s.step.peer)]));
    }
    fmt::print("\n");
  }
}

// The median in time of those that move the most bytes.
std::size_t most_moving(const std::vector<MeasuredCollective>& all) {
  PEAL_CHECK(!all.empty(), "there is no collective in this trace: ranks that are alone have none");
  const auto most = std::ranges::max_element(all, {}, &MeasuredCollective::bytes)->bytes;
  std::vector<std::pair<double, std::size_t>> best;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].bytes == most && all[i].end > 0) best.emplace_back(all[i].end - all[i].begin, i);
  }
  PEAL_CHECK(most > 0 && !best.empty(),
             "no collective in this trace has moved anything; choose "
             "one with --operation");
  std::ranges::sort(best);
  return best[best.size() / 2].second;
}

void show_one(const MeasuredCollective& one, std::size_t number, const TraceOptions& options) {
  const comm::Timeline measured = timeline(one);
  const comm::Simulation simulated = modelled(one, options.machine);
  const std::string said = beside_model(one, simulated);
  fmt::print("{}: {}\n", number, said);
  const std::vector<comm::NamedTimeline> both{{"model", &simulated.timeline},
                                              {"measured", &measured}};
  if (!options.draw.empty()) write_file(options.draw, svg(both, said));
  if (!options.json.empty() && options.operation >= 0) {
    write_file(options.json, chrome_trace(both));
  }
}

}  // namespace

std::size_t operation_chosen(const std::vector<comm::MeasuredCollective>& all, int number) {
  PEAL_CHECK(number < static_cast<int>(all.size()), "there is no operation ", number, " among ",
             all.size());
  const std::size_t index = number >= 0 ? static_cast<std::size_t>(number) : most_moving(all);
  const MeasuredCollective& one = all[index];
  const auto& text = one.first().text;
  PEAL_CHECK(one.bytes > 0, text, " left no steps: it ran inside ", one.first().algorithm);
  PEAL_CHECK(std::ranges::count(one.parts, nullptr) == 0 && one.end > 0, text,
             " is not whole: choose another with --operation");
  return index;
}

comm::Simulation modelled(const comm::MeasuredCollective& one, const MachineOptions& options) {
  const int ranks = static_cast<int>(one.parts.size());
  comm::Machine machine = options.machine(ranks);
  for (int r = 0; r < ranks; ++r) {
    const comm::MeasuredPart* part = one.parts[static_cast<std::size_t>(r)];
    if (part == nullptr) continue;
    machine.stragglers.push_back({.rank = r, .late = part->begin - one.begin, .slowdown = 1});
  }
  const auto programs = comm::programs(one);
  return simulate(
      ranks, [&](int rank) { return programs[static_cast<std::size_t>(rank)]; },
      static_cast<int>(one.first().element), machine, comm::Record::timeline);
}

std::string beside_model(const comm::MeasuredCollective& one, const comm::Simulation& simulated) {
  return fmt::format("{} by {}, {} ranks: model {}, measured {}", one.first().text,
                     one.first().algorithm, one.parts.size(), seconds_text(simulated.seconds),
                     seconds_text(one.end - one.begin));
}

int trace(const TraceOptions& options) {
  const comm::MeasuredRun run = comm::read_measured(options.folder);
  const auto all = comm::collectives(run);
  fmt::print("{} ranks, {} collectives, {} messages; times of two ranks are right to {}\n",
             run.world, all.size(), run.messages, seconds_text(run.uncertainty));
  if (run.dropped > 0) fmt::print("{} records had no room and are missing\n", run.dropped);
  if (run.impossible > 0) {
    fmt::print("WARNING: a message came {} before it was sent: the clocks did not run evenly\n",
               seconds_text(run.impossible));
  }
  const auto steps = comm::training_steps(run);
  if (options.operation < 0 && options.step < 0) {
    print_list(all);
    if (!steps.empty()) print_steps(steps);
    print_unfinished(run);
  }
  if (options.step >= 0) show_step(steps, options);
  if (options.operation >= 0 || (options.step < 0 && !options.draw.empty())) {
    const std::size_t number = operation_chosen(all, options.operation);
    show_one(all[number], number, options);
  }
  if (!options.json.empty() && options.operation < 0) {
    comm::Timeline whole = timeline(run);
    add_training(whole, run, steps);
    write_file(options.json, chrome_trace(whole));
  }
  return run.impossible > 0 ? 1 : 0;
}

}  // namespace peal::launch
