// SPDX-License-Identifier: Apache-2.0
#pragma once

// How long a pipeline schedule takes, how much of that its ranks are idle, and how much they keep.
//
// Model. A rank runs its actions in order, each as soon as what it needs is there. Costs are those
// of all the parts of a rank together for one micro-batch; a part has its share of them. A message
// takes as long, beside whatever its ranks compute, from the end of the action that makes its
// content on; messages do not wait for each other. Times have no unit.
//
// The bubble is what a rank is idle until the last has ended; its share is bubble / makespan. (Some
// books divide by the work instead; pictures of both are alike, so the tool prints both.)
//
// Thread safety: pure functions and values.

#include <peal/comm/pipeline/pipeline.h>

#include <optional>
#include <span>
#include <vector>

namespace peal::comm::pipeline {

struct Costs {
  double forward = 1, input = 1, weight = 1;  // backward in one: input + weight
  double message = 0;
};

struct Activity {
  Action action;
  double begin, end;
};

struct Run {
  std::vector<std::vector<Activity>> ranks;  // in order
  double makespan = 0;
  double work = 0;         // of the rank that has most
  std::vector<int> stash;  // the most entries at a time, by rank
  // The time in which the rank that has most work does nothing, in the unit of Costs.
  double bubble() const { return makespan - work; }
};

// Goes by what programs run; messages are taken as given. std::invalid_argument where an action
// waits for something that never comes (verify() says more).
Run simulate(const Problem& problem, std::span<const Program> programs, const Costs& costs = {});

// Closed forms. The most entries of a rank's stash, which schedule() never exceeds; it reaches them
// where micro-batches are a multiple of stages, and but for `interleaved` always.
int stash_bound(const Problem& problem, int rank);
// The bubble, and why: exact with forward = input = weight and free messages. Nothing where the
// books have no formula: interleaved needs whole groups, ZB-H1 as many micro-batches as stages,
// ZB-V twice as many.
struct BubbleFormula {
  std::string_view text;
  double value;
};
// The bubble by its published formula, in the unit of `costs`; none where it does not hold for such
// a problem.
std::optional<BubbleFormula> bubble_formula(const Problem& problem, const Costs& costs = {});

}  // namespace peal::comm::pipeline
