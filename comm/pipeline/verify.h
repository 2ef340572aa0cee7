// SPDX-License-Identifier: Apache-2.0
#pragma once

// Proves, or refutes, that the programs of a whole pipeline do one step of training. It runs them
// without data, by the rules of pipeline.h.
//
// Accepted programs, run on any transport that keeps those rules, have these properties:
//   - every step is well formed: its part and micro-batch exist, the part is the rank's own, a
//     message has the peer that needs it, and what has no peer names none;
//   - every part runs each micro-batch forward once, and backward once, in one or in two;
//   - nothing runs before what it needs is there, and nothing is sent before it is made;
//   - every result that another rank needs is sent once, and arrives; what stands in a queue on one
//     side stands in it on the other, in the same order;
//   - no set of ranks waits for each other, even if no message is ever buffered;
//   - no rank ever has more in its stash than stash_bound().
// A rank has one thing to wait for at a time, and queues have one order, so what happens does not
// depend on timing but for when it does: one run stands for all.
//
// Thread safety: a pure function. Cost: linear in steps.

#include <peal/comm/pipeline/pipeline.h>

#include <span>
#include <string>

namespace peal::comm::pipeline {

struct Verdict {
  bool ok = false;
  std::string why;  // if not ok: rank and step, what was expected and what came
  // Whether it is right.
  explicit operator bool() const { return ok; }
};

// programs[r] is rank r's; steps are counted from 0. Throws std::invalid_argument if the problem
// itself is not legal.
Verdict verify(const Problem& problem, std::span<const Program> programs);

}  // namespace peal::comm::pipeline
