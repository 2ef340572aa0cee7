// SPDX-License-Identifier: Apache-2.0
// Plans of batches: which samples are in which batch of an epoch, as a plain value that the loader
// follows. Pure functions make it, so that it can be printed, compared between ranks, and tested
// without data; what the loader's options cannot say is a plan of one's own:
//
//   data::DataLoader loader(texts, [=](std::int64_t epoch) {
//     const auto order = data::shard(texts->size(), 1, 0, {.seed = 7, .epoch = epoch});
//     return data::batch_shard(data::by_length(order, lengths, 32), 32, job.place());
//   });
//
// Of a set too large for lists, a plan makes each batch when it is asked for (planned.h):
//
//   data::DataLoader loader(set, [=](std::int64_t epoch) {
//     return data::dealt_batches(data::epoch_order(set->size(), {.epoch = epoch}),
//                                {.batch_size = 32, .place = job.place()});
//   });
//
// Thread safety: pure functions.
#pragma once

#include <peal/autograd/core/place.h>
#include <peal/data/deal.h>
#include <peal/data/planned.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace peal::data {

using Batches = std::vector<std::vector<std::int64_t>>;
using PlannedBatches = Planned<std::vector<std::int64_t>>;
// The batches of an epoch; Batches will do. A pure function.
using BatchPlan = std::function<PlannedBatches(std::int64_t epoch)>;

// `samples` cut into runs of batch_size, of which the last may be shorter, and is then left out by
// drop_last. Error: batch_size < 1.
Batches in_batches(std::span<const std::int64_t> samples, std::int64_t batch_size,
                   bool drop_last = false);

// How many in_batches() makes of so many samples.
std::int64_t count_batches(std::int64_t samples, std::int64_t batch_size, bool drop_last = false);

// The same, each made when it is asked for.
PlannedBatches planned_batches(Order samples, std::int64_t batch_size, bool drop_last = false);

// This rank's batches of an order of all ranks; of what is left of it after `before`, where the
// padding is still the order's first samples. Errors: as of deal() and left().
PlannedBatches dealt_batches(const Order& order, const Deal& how,
                             std::span<const Dealt> before = {});
// The same of all ranks in turn, rank 0's first one, rank 1's, and so on, for who makes them and
// passes them on. REQUIRES: all ranks have equally many. `how.place.rank` is not read.
PlannedBatches dealt_to_all(const Order& order, Deal how, std::span<const Dealt> before = {});
// The places of the samples of batch k in the order; -1 where they are padding.
std::vector<std::int64_t> dealt_places(std::int64_t samples, const Deal& how,
                                       std::span<const Dealt> before, std::int64_t k);

// Batch k goes to rank k mod world (Accelerate's BatchSamplerShard). `whole` are the batches of all
// ranks, of batch_size samples but for the last, which may have fewer. Errors: a place outside of
// its world, batch_size < 1, batches of another size.
Batches batch_shard(const Batches& whole, std::int64_t batch_size, Place place,
                    Tail tail = Tail::fill);

// Every batch is shared out, rank r having the r-th of world equal runs of it (Accelerate's
// split_batches). Of a last batch that is short, `fill` repeats the samples of the first behind it,
// `uneven` gives each rank what its run has of it, perhaps nothing. Errors: as of batch_shard, and
// a batch_size that world does not divide.
Batches split_batches(const Batches& whole, std::int64_t batch_size, Place place,
                      Tail tail = Tail::fill);

// One rank reads `world` batches at a time and shares their samples out (Accelerate's dispatcher):
// each rank gets a run of them, in order; the last runs are shorter, and where world does not
// divide what is left, are filled up with the first samples of the epoch, or with drop_last left
// out. Errors: as of batch_shard.
Batches dispatched(const Batches& whole, std::int64_t batch_size, Place place,
                   bool drop_last = false);

// The same for the rank that reads: the batches of all ranks, in turn, so that it can make them one
// after the other and pass them on (launch/training/dispatcher.h).
Batches dispatch_order(const Batches& whole, std::int64_t batch_size, int world,
                       bool drop_last = false);

// The ranks have contiguous parts of `samples`, in batches of their own (fastai's DistributedDL):
// padded at the end with the first samples again, so that all have equally many; drop_last leaves
// out each rank's last batch where it is short, as there (Tail::drop of deal.h pads nothing).
// Errors: a place outside of its world, batch_size < 1.
Batches contiguous_batches(std::span<const std::int64_t> samples, std::int64_t batch_size,
                           Place place, bool drop_last = false);
// How many samples of batch number `batch` of this rank are none of that padding; they are its
// first ones, and so are those of all ranks where their batches are gathered by rank.
std::int64_t unpadded(std::int64_t samples, std::int64_t batch_size, Place place,
                      std::int64_t batch);

// Batches of samples of like length, so that padding costs little (PyTorch's bucketing; the
// transformers' LengthGroupedSampler): among every `window` batches, in the order of `samples`,
// samples stand by their length, longest first. `lengths` is by sample. Errors: batch_size or
// window < 1, a sample without a length.
Batches by_length(std::span<const std::int64_t> samples, std::span<const std::int64_t> lengths,
                  std::int64_t batch_size, std::int64_t window = 50);

}  // namespace peal::data
