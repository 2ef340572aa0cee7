// SPDX-License-Identifier: Apache-2.0
#pragma once

// Pipeline schedules are values. A model is cut into parts, one after the other, and a rank has one
// or several of them; a batch is cut into micro-batches, which go through the parts. Which part of
// which micro-batch a rank computes when, and what it then sends to whom, is a Program: a pure
// function of small integers. So it can be printed, verified, costed and drawn before anything
// runs.
//
// Vocabulary. A stage is a rank of the pipeline; a chunk is one of the parts that it has. Parts are
// numbered in the order of forward, from 0 to stages * chunks - 1, and micro-batches from 0. An
// action is what a rank computes: F, the forward of a part; B, its backward; or backward in two: I,
// the gradient of its input, which the part before waits for, and W, the gradients of its weights,
// which nobody waits for until the step ends. `2F3` is F of part 2 for micro-batch 3; where ranks
// have one part each, `F3`.
//
// Steps. A rank goes through its program in order. `run` waits until what the action needs has
// come. `send` and `recv` only post a message and never wait; its action is the one whose result it
// carries, an activation (F) or a gradient (B, I). A message moves when both its sides are posted
// (rendezvous: nothing is ever buffered), and all messages between two ranks, in both directions,
// go one after the other in the order in which either posts them. So schedules run on any
// transport, one whose messages share a single queue (NCCL) included. A program has ended when its
// last action is done and its messages have moved.
//
// A receive is posted before the action before the one that needs it, where the order of the queue
// allows, so that a message travels while its receiver computes.
//
// Skips. A part may give something to a later one than the next, past those between them: a skip
// connection (torchgpipe: skippable). It is made with the F of the part that it comes from and goes
// straight to the rank of the part that takes it, whose F waits for it; its gradient is made with
// that part's B or I, and goes straight back. Such a message names the part at its other end:
// `send 0F3 to 2 for 5`. What comes before a part comes later than what it skips, so that skips
// make no schedule longer, and orders do not depend on them.
//
// Stash. What a part keeps between F and the end of its backward (B, or W) is one entry of its
// rank's stash.
//
// Thread safety: plain values. Everything here throws std::invalid_argument, and only that.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace peal::comm::pipeline {

enum class Kind : std::uint8_t { gpipe, one_f_one_b, interleaved, zb_h1, zb_v };
inline constexpr Kind all_kinds[] = {Kind::gpipe, Kind::one_f_one_b, Kind::interleaved, Kind::zb_h1,
                                     Kind::zb_v};
// "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v".
std::string_view name(Kind kind);
// Throws std::invalid_argument for another name, with those that there are.
Kind kind_named(std::string_view name);
// Backward in two: I and W.
constexpr bool splits_backward(Kind kind) { return kind == Kind::zb_h1 || kind == Kind::zb_v; }

// From a part to one behind the next.
struct Skip {
  int from = 0, to = 0;
  bool operator==(const Skip&) const = default;
};

struct Problem {
  Kind kind = Kind::one_f_one_b;
  int stages = 1;
  int micro_batches = 1;
  int chunks = 1;             // of a stage: interleaved has at least 2, ZB-V 2, the others 1
  std::vector<Skip> skips{};  // each once

  // How many parts the model is cut into, and the number of the last, counted from 0.
  int parts() const { return stages * chunks; }
  int last_part() const { return parts() - 1; }
  // Parts are dealt round in turn; those of ZB-V come back the way they went, in a V.
  int rank_of(int part) const;
};
// `chunks` 0: as many as the kind has at least. Throws unless the problem is legal.
Problem make_problem(Kind kind, int stages, int micro_batches, int chunks = 0);
void validate(const Problem& problem);

enum class Pass : std::uint8_t { forward, backward, input, weight };
struct Action {
  Pass pass = Pass::forward;
  int part = 0, micro_batch = 0;
  bool operator==(const Action&) const = default;
};
std::string text(const Action& action);                          // "2F3"
std::string text(const Action& action, const Problem& problem);  // "F3" where a rank has one part

enum class Verb : std::uint8_t { run, send, recv };
inline constexpr int no_rank = -1, no_part = -1;
struct Step {
  Verb verb = Verb::run;
  Action action;
  int peer = no_rank;  // of a message
  int skip = no_part;  // of a skip's message: the part at its other end
  bool operator==(const Step&) const = default;
};
std::string text(const Step& step);  // "2F3", "send 2F3 to 1", "recv 2I3 from 3"

using Program = std::vector<Step>;

// The parts that an action's result is for: the next, or the one before, first, as no_part; then
// those at the other ends of its skips.
std::vector<int> takers(const Problem& problem, const Action& action);
// The rank that an action's result is sent to, for the next part or for that of a skip; no_rank
// where no other rank needs it.
int receiver(const Problem& problem, const Action& action, int skip = no_part);

// A program for each rank.
std::vector<Program> schedule(const Problem& problem);

}  // namespace peal::comm::pipeline
