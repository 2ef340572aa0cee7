// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/algorithms/table.h>
#include <peal/nn/parallel/bucket_size.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace peal::nn {
namespace {

constexpr std::int64_t one_mib = std::int64_t{1} << 20, most_bytes_chosen = 25 * one_mib;
// A slower network than the one assumed gains by smaller buckets far more than this loses here.
constexpr double near_enough = 1.05;

}  // namespace

std::vector<BucketCaps> sizes_to_try(std::int64_t first_bytes) {
  std::vector<BucketCaps> all;
  for (const std::int64_t mib : {25, 16, 12, 8, 6, 4, 3, 2, 1}) {
    all.push_back({first_bytes, mib * one_mib, first_bytes});
  }
  return all;
}

StepProfile even_profile(std::span<const ParameterSpec> parameters, const CollectiveCost& cost) {
  StepProfile profile;
  profile.ready.assign(parameters.size(), 0);
  double all = 0;
  for (const Bucket& bucket : plan_buckets(parameters, {1, 1})) {  // one for each parameter
    all += static_cast<double>(bucket.count) * static_cast<double>(size_of(bucket.dtype));
    for (const auto& entry : bucket.entries) {
      profile.ready[static_cast<std::size_t>(entry.parameter)] = all;
    }
  }
  if (all == 0) return profile;
  profile.backward = cost(all);
  for (double& time : profile.ready) time *= profile.backward / all;
  return profile;
}

CollectiveCost assumed_cost(const comm::Topology& nodes) {
  std::map<int, int> ranks;  // by node
  int most = 0;
  for (const int node : nodes.node) most = std::max(most, ++ranks[node]);
  if (ranks.size() < 2) return {};
  constexpr double latency = 5e-6, per_byte = 8e-9 / 100;
  constexpr int element = 4;
  const comm::Entry* const entry = comm::find(comm::Collective::all_reduce, "circulant");
  PEAL_CHECK(entry != nullptr, "bucket size: there is no all_reduce by circulant");
  return [=](double bytes) {
    const std::int64_t counts[] = {std::max<std::int64_t>(1, std::llround(bytes / element))};
    const comm::Cost cost = entry
                                ->costs({.what = comm::Collective::all_reduce,
                                         .rank = 0,
                                         .world = static_cast<int>(nodes.node.size()),
                                         .root = 0,
                                         .counts = counts,
                                         .nodes = nodes})
                                .most;
    return static_cast<double>(cost.rounds) * latency +
           static_cast<double>(cost.sent * element * most) * per_byte;
  };
}

BucketCaps chosen_caps(std::span<const ParameterSpec> parameters, const BucketCaps& caps,
                       const CollectiveCost& cost) {
  BucketCaps chosen = caps;
  if (caps.bytes != 0) return chosen;
  chosen.bytes = most_bytes_chosen;
  if (!cost) return chosen;
  const StepProfile profile = even_profile(parameters, cost);
  const auto table = what_if(parameters, profile, cost, {.caps = sizes_to_try(caps.first_bytes)});
  const double best = std::ranges::min(table, {}, &WhatIf::step).step;
  for (const WhatIf& each : table) {  // the smallest comes last
    if (each.step <= best * near_enough) chosen = each.caps;
  }
  return chosen;
}

}  // namespace peal::nn
