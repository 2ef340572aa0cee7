// SPDX-License-Identifier: Apache-2.0
// Bucket size: what a bucket holds at most where the caller does not say, by a model of the
// machine. Large buckets expose their last one, when nothing is left to compute; of small ones each
// costs the latencies of a collective. How much, what_if.h says of any size:
//
//   most = the smallest cap whose step is within 5 % of the shortest in
//          what_if(parameters, even_profile(..), cost, ..), where the last buckets get smaller
//
// for a model whose gradients come evenly over a backward that is as long as the network needs for
// all of them. There the size matters most: a longer backward hides more whatever the size, and
// beside a shorter one the network is what counts. With n buckets of B / n bytes, a for the
// latencies of a collective and r for a byte, such a step is longer by about n a + r B / n, so the
// best size is near sqrt(B a / r). Thread safety: pure functions.
#pragma once

#include <peal/comm/schedule/schedule.h>
#include <peal/nn/parallel/what_if.h>

#include <cstdint>
#include <span>
#include <vector>

namespace peal::nn {

// What is tried: 1 to 25 MiB, with a first bucket of `first_bytes`.
std::vector<BucketCaps> sizes_to_try(std::int64_t first_bytes);
// Of a model that nobody has measured, in the order of its plan.
StepProfile even_profile(std::span<const ParameterSpec> parameters, const CollectiveCost& cost);

// What an all_reduce takes between nodes that nobody has measured: by the formula of its algorithm
// there (circulant), 5 us a message and 100 Gbit/s, which the ranks of a node share. None on one
// node, where the CPU moves the gradients and nothing goes on beside.
CollectiveCost assumed_cost(const comm::Topology& nodes);

// The caps, with a number for `bytes` where that is 0. Without a cost: 25 MiB.
BucketCaps chosen_caps(std::span<const ParameterSpec> parameters, const BucketCaps& caps,
                       const CollectiveCost& cost);

}  // namespace peal::nn
