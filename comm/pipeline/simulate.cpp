// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/pipeline/simulate.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace peal::comm::pipeline {
namespace {

class Clock {
 public:
  Clock(const Problem& problem, const Costs& costs)
      : problem_(problem),
        costs_(costs),
        cells_(static_cast<std::size_t>(problem.parts() * problem.micro_batches)),
        forward_(cells_, never),
        gradient_(cells_, never) {}

  // When the action begins that could at `now`; `never` where what it needs has no time yet.
  double begin(const Action& action, double now) const {
    const int part = action.part;
    switch (action.pass) {
      case Pass::forward:
        return part == 0 ? now : std::max(now, arrival(forward_, action, part - 1));
      case Pass::backward:
      case Pass::input:
        now = std::max(now, forward_[at(action, part)]);
        return part == problem_.last_part() ? now
                                            : std::max(now, arrival(gradient_, action, part + 1));
      case Pass::weight:
        return std::max(now, gradient_[at(action, part)]);
    }
    return now;
  }

  double cost(Pass pass) const {
    const double whole = pass == Pass::forward  ? costs_.forward
                         : pass == Pass::input  ? costs_.input
                         : pass == Pass::weight ? costs_.weight
                                                : costs_.input + costs_.weight;
    return whole / problem_.chunks;
  }

  void ended(const Action& action, double time) {
    if (action.pass == Pass::weight) return;
    (action.pass == Pass::forward ? forward_ : gradient_)[at(action, action.part)] = time;
  }

  static constexpr double never = std::numeric_limits<double>::infinity();

 private:
  std::size_t at(const Action& action, int part) const {
    return static_cast<std::size_t>(part * problem_.micro_batches + action.micro_batch);
  }
  // At the action's rank, of what `part` has made for it.
  double arrival(const std::vector<double>& made, const Action& action, int part) const {
    const bool local = problem_.rank_of(part) == problem_.rank_of(action.part);
    return made[at(action, part)] + (local ? 0 : costs_.message);
  }

  const Problem& problem_;
  const Costs& costs_;
  std::size_t cells_;
  std::vector<double> forward_, gradient_;  // when they end, by part and micro-batch
};

void check_inside(const Problem& problem, std::span<const Program> programs) {
  validate(problem);
  if (programs.size() != static_cast<std::size_t>(problem.stages)) {
    throw std::invalid_argument("pipeline: expected a program for each of " +
                                std::to_string(problem.stages) + " stages, got " +
                                std::to_string(programs.size()));
  }
  for (const Program& program : programs) {
    for (const Step& step : program) {
      const Action& a = step.action;
      if (a.part >= 0 && a.part < problem.parts() && a.micro_batch >= 0 &&
          a.micro_batch < problem.micro_batches && a.pass <= Pass::weight) {
        continue;
      }
      throw std::invalid_argument("pipeline: there is no " + text(step.action) + " among " +
                                  std::to_string(problem.parts()) + " parts and " +
                                  std::to_string(problem.micro_batches) + " micro-batches");
    }
  }
}

}  // namespace

Run simulate(const Problem& problem, std::span<const Program> programs, const Costs& costs) {
  check_inside(problem, programs);
  Clock clock(problem, costs);
  Run run;
  run.ranks.resize(programs.size());
  run.stash.resize(programs.size());
  std::vector<std::size_t> next(programs.size());
  std::vector<double> now(programs.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < programs.size(); ++r) {
      for (; next[r] < programs[r].size(); ++next[r]) {
        const Step& step = programs[r][next[r]];
        if (step.verb != Verb::run) continue;
        const double begin = clock.begin(step.action, now[r]);
        if (begin == Clock::never) break;
        now[r] = begin + clock.cost(step.action.pass);
        clock.ended(step.action, now[r]);
        run.ranks[r].push_back({step.action, begin, now[r]});
        moved = true;
      }
    }
  }
  for (std::size_t r = 0; r < programs.size(); ++r) {
    if (next[r] < programs[r].size()) {
      throw std::invalid_argument("pipeline: rank " + std::to_string(r) +
                                  " waits for ever before " + text(programs[r][next[r]]) +
                                  "; verify the programs first");
    }
    run.makespan = std::max(run.makespan, now[r]);
    double work = 0;
    int live = 0;
    for (const Activity& activity : run.ranks[r]) {
      const Pass pass = activity.action.pass;
      work += clock.cost(pass);
      if (pass == Pass::forward) run.stash[r] = std::max(run.stash[r], ++live);
      if (pass == Pass::backward || pass == Pass::weight) --live;
    }
    run.work = std::max(run.work, work);
  }
  return run;
}

int stash_bound(const Problem& problem, int rank) {
  const int p = problem.stages, m = problem.micro_batches, v = problem.chunks;
  switch (problem.kind) {
    case Kind::gpipe:
      return m;
    case Kind::one_f_one_b:
      return std::min(m, p - rank);
    case Kind::interleaved:
      return std::min(m * v, 2 * (p - rank - 1) + (v - 1) * p + 1);
    case Kind::zb_h1:
      return std::min(m, p);
    case Kind::zb_v:  // of the part on the way down, and of the one on the way up
      return std::min(m, 2 * p - 1 - rank) + std::min(m, rank + 1);
  }
  return 0;
}

std::optional<BubbleFormula> bubble_formula(const Problem& problem, const Costs& costs) {
  const int p = problem.stages, m = problem.micro_batches, v = problem.chunks;
  const double f = costs.forward, i = costs.input, w = costs.weight;
  switch (problem.kind) {
    case Kind::gpipe:
    case Kind::one_f_one_b:
      return BubbleFormula{"(p-1)(F+B)", (p - 1) * (f + i + w)};
    case Kind::interleaved:
      if (m % p != 0) return {};
      return BubbleFormula{"(p-1)(F+B)/v", (p - 1) * (f + i + w) / v};
    case Kind::zb_h1:
      if (m < p || w > f + i) return {};
      return BubbleFormula{"(p-1)(F+I-W)", (p - 1) * (f + i - w)};
    case Kind::zb_v:
      if (m < 2 * p) return {};
      return BubbleFormula{"(p-1)F/2", (p - 1) * f / 2};
  }
  return {};
}

}  // namespace peal::comm::pipeline
