// SPDX-License-Identifier: Apache-2.0
#pragma once

// The judge of the pipeline verifier: runs the programs of a pipeline on numbers, one small move at
// a time, in an order drawn at random, and looks whether losses and gradients are right. It shares
// no idea with the verifier but pipeline.h.
//
// A part is a function that is not linear, its gradient one that needs what forward has kept, and
// the gradients of weights are sums over micro-batches; all modulo 2^64, so any order of additions
// gives the same. A rank believes the label of what it receives, and takes it as what its own
// program says that it is. Messages move when both sides are posted: in some runs each pair of
// ranks has one queue for both directions, in others one for each; in some they move at once, in
// others only when no rank can go on.
//
// A good verdict is a sample, not a proof; a bad one is a fact.

#include <peal/comm/pipeline/pipeline.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace peal::comm::pipeline::testing {

struct Judgement {
  bool good = false;
  std::string why;         // if bad
  std::vector<int> stash;  // if good: the most entries, by rank
};

// Runs several interleavings drawn from the seed. `room`: entries of the stash that a rank has
// memory for; empty: as many as it likes.
Judgement judge(const Problem& problem, std::span<const Program> programs, std::uint64_t seed,
                std::span<const int> room = {});

}  // namespace peal::comm::pipeline::testing
