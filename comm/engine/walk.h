// SPDX-License-Identifier: Apache-2.0
// Walk: the one interpreter of plans, as far as it is the same whoever runs one: the order of
// rounds and combinations, the signals that are awaited, and what goes on instead. What the steps
// of a round do, its Run knows: an operation's (execution.h), or a call's that ends where it is
// made (immediate.h). Thread safety: one thread at a time (the engine's lock).
#pragma once

#include <peal/comm/engine/spans.h>
#include <peal/comm/memory/window.h>
#include <peal/comm/schedule/plan.h>

#include <cstddef>

namespace peal::comm {

// Where a run has come to.
struct Walk {
  const Plan* plan;                // that runs: the call's, or what goes on instead of it
  std::size_t round, combination;  // the next ones
  bool in_round;                   // that round has begun, and is not over
  std::size_t awaited;             // of its steps; those before have no signal to come
};

// True once all signals of the round have come.
inline bool await_signals(Walk& at, Window* window) {
  const Round& round = at.plan->program.rounds[at.round];
  for (; at.awaited < round.size(); ++at.awaited) {
    const Step& step = round[at.awaited];
    if (step.kind == Kind::await && !window->await_briefly(step.peer)) return false;
  }
  return true;
}

// Goes on until all rounds are done, or something must be waited for: then false. Of the run:
//   combines()        combinations are done as one
//   ready(round)      all that the rounds up to this one touch has come
//   combine(all)      the rounds of a combination, which begins at the walk's
//   begin()           of the walk's round: all but to wait
//   is_over()         its messages are
//   end()             what follows them
//   goes_on()         the walk has another plan now
template <class Run>
bool walk(Walk& at, Window* window, Run& run) {
  while (at.round < at.plan->program.rounds.size()) {
    const auto& combinations = at.plan->combinations;
    if (!at.in_round) {
      if (run.combines() && at.combination < combinations.size() &&
          combinations[at.combination].first == at.round) {
        const Plan::Combination& all = combinations[at.combination];
        if (!run.ready(at.round + all.rounds - 1)) return false;
        run.combine(all);
        at.round += all.rounds;
        ++at.combination;
        continue;
      }
      if (!run.ready(at.round)) return false;
      at.in_round = true;
      at.awaited = 0;
      run.begin();
    }
    if (!run.is_over() || !await_signals(at, window)) return false;
    at.in_round = false;
    run.end();
    if (++at.round == 1 && at.plan->otherwise && !window->reaches_all()) {
      at.plan = at.plan->otherwise.get();
      run.goes_on();
    }
  }
  return true;
}

}  // namespace peal::comm
