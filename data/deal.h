// SPDX-License-Identifier: Apache-2.0
// Dealing: how the ranks share an order of samples in batches, beside taking turns with single
// samples as shard() does (sampler.h). A deal is a pure function from a few integers to the places
// of the order that a rank's k-th batch has, so a batch is found without those before it, an epoch
// is taken up in another way or world (`left`), and what ranks gather finds its place again.
//
// Order   0 1 2 3 4 5 6 7 8 9 of ten, batches of two, three ranks:
//   batches      0 1 | 2 3 | 4 5   then  6 7 | 8 9 | 0 1     (Accelerate: BatchSamplerShard)
//   contiguous   0 1 | 4 5 | 8 9   then  2 3 | 6 7 | 0 1     (fastai: DistributedDL)
//   dispatched   0 1 | 2 3 | 4 5   then  6 7 | 8 9 | 0 1     (Accelerate: the dispatcher)
//   split, six to a batch of all:  as dispatched here        (Accelerate: split_batches)
// Where what is left is no full round: `dispatched` deals it out evenly, in shorter runs. With
// Tail::drop contiguous parts are as many full batches as all ranks can have, and nothing comes
// twice: here 0 1 | 2 3 | 4 5.
//
// Thread safety: pure functions.
#pragma once

#include <peal/autograd/core/place.h>
#include <peal/data/planned.h>

#include <cstdint>
#include <span>
#include <vector>

namespace peal::data {

enum class Tail : std::uint8_t {
  fill,   // ranks get full batches, the last ones filled up with the first samples again
  drop,   // what is left when not every rank has a full batch goes unseen
  uneven  // every sample once: ranks differ in the number and size of their batches
};

enum class Way : std::uint8_t {
  samples,     // ranks take turns with samples, of which each makes batches: sampler.h, not here
  batches,     // batch k goes to rank k mod world
  split,       // a batch is all ranks': rank r has the r-th of world equal runs of it
  contiguous,  // rank r has the r-th of world equal parts of the order, in batches of its own
  dispatched   // as `batches`, but what is left of the last round is dealt out evenly
};

struct Deal {
  Way way = Way::batches;
  std::int64_t batch_size = 1;  // of a rank; with `split` of all ranks together
  Place place{};
  Tail tail = Tail::fill;
};

// Places begin..end-1 of an order; those from its size on are padding.
struct Run {
  std::int64_t begin = 0, end = 0;
};

// The runs of this rank, of `samples` in order. Errors: a way that is none of these, a place
// outside of its world, batch_size < 1, with `split` one that world does not divide.
Planned<Run> deal(std::int64_t samples, const Deal& how);

// From where padding takes its samples: place p of an order of `samples` that has no p is place
// (p - samples) mod padded_from() of the whole order.
std::int64_t padded_from(std::int64_t whole, const Deal& how);

// That every rank took `batches` of its runs.
struct Dealt {
  Way way = Way::batches;
  std::int64_t batch_size = 1;
  int world = 1;
  std::int64_t batches = 0;
  bool drop = false;  // of contiguous parts, those of Tail::drop, which are shorter
  bool operator==(const Dealt&) const = default;
};

Dealt dealt(const Deal& how, std::int64_t batches);

// What is left of an order of `samples` after these, each of which dealt what the one before it had
// left: its places, ascending.
std::vector<Run> left(std::int64_t samples, std::span<const Dealt> dealt);

// The k-th of the places in these runs, as an order.
Order places_of(std::vector<Run> runs);

}  // namespace peal::data
