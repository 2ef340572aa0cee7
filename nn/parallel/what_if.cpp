// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/algorithms/table.h>
#include <peal/comm/algorithms/world.h>
#include <peal/nn/parallel/what_if.h>

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace peal::nn {
namespace {

// On the wire.
double bytes_of(const Bucket& bucket, std::optional<DType> travels_in) {
  const std::size_t own = size_of(bucket.dtype);
  const std::size_t each = travels_in ? std::min(own, size_of(*travels_in)) : own;
  return static_cast<double>(bucket.count) * static_cast<double>(each);
}

std::vector<BucketCaps> usual_caps() {
  constexpr std::int64_t mib = std::int64_t{1} << 20;
  std::vector<BucketCaps> caps;
  for (const std::int64_t bytes :
       {mib / 4, mib, 2 * mib, 4 * mib, 8 * mib, 16 * mib, 25 * mib, 64 * mib}) {
    caps.push_back({std::min(bytes, mib), bytes});
  }
  caps.push_back({std::int64_t{1} << 60, std::int64_t{1} << 60});
  return caps;
}

std::string cap_text(std::int64_t bytes) {
  if (bytes >= std::int64_t{1} << 50) return "all in one";
  const bool whole = bytes >= 1 << 20;
  return fmt::format("{} {}", bytes >> (whole ? 20 : 10), whole ? "MiB" : "KiB");
}

}  // namespace

StepProfile StepProfile::scaled(double share) const {
  StepProfile other{before * share, backward * share, after * share, ready};
  for (double& time : other.ready) time *= share;
  return other;
}

StepProfile profile_of(const DDPLoggingData& data, double after) {
  PEAL_CHECK(data.step > 0, "what_if: no step was measured yet; set DDPOptions::measure_every");
  return {data.forward_compute_time, data.backward_compute_time, after, data.gradient_ready};
}

CollectiveCost simulated_cost(const comm::Machine& machine, std::string_view algorithm,
                              std::int64_t least_bytes, std::int64_t most_bytes) {
  const int world = static_cast<int>(machine.nodes.node.size());
  if (world <= 1) return [](double) { return 0.0; };
  const comm::Entry* const entry = comm::find(comm::Collective::all_reduce, algorithm);
  PEAL_CHECK(entry != nullptr, "what_if: there is no all_reduce by '", algorithm, "'");
  PEAL_CHECK(entry->supports(world), "what_if: all_reduce by ", algorithm, " has no plan for ",
             world, " ranks");
  constexpr int element = 4;
  std::vector<comm::Rate::Point> points;
  const double least = static_cast<double>(std::max<std::int64_t>(least_bytes, element));
  const double most = std::max(static_cast<double>(most_bytes), least);
  for (double bytes = least;; bytes = std::min(bytes * 2, most)) {
    const std::int64_t count = std::max<std::int64_t>(1, std::llround(bytes / element));
    const auto counts = comm::even_counts(comm::Collective::all_reduce, world, count);
    const auto program_of = [&](int rank) {
      return comm::plan(*entry, {.what = comm::Collective::all_reduce,
                                 .rank = rank,
                                 .world = world,
                                 .root = 0,
                                 .counts = counts,
                                 .nodes = machine.nodes});
    };
    points.push_back({bytes, simulate(world, program_of, element, machine).seconds});
    if (bytes >= most) break;
  }
  return [rate = comm::Rate(std::move(points))](double bytes) { return rate.seconds(bytes); };
}

std::vector<int> arrival_of(const StepProfile& profile) {
  const auto time = [&](int p) { return profile.ready[static_cast<std::size_t>(p)]; };
  std::vector<int> order;
  for (int p = 0; p < static_cast<int>(profile.ready.size()); ++p) {
    if (!std::isnan(time(p))) order.push_back(p);
  }
  std::ranges::stable_sort(order, {}, time);
  return order;
}

WhatIf what_if(const StepProfile& profile, std::span<const Bucket> plan, const CollectiveCost& cost,
               std::optional<DType> travels_in) {
  WhatIf found{.buckets = plan.size()};
  double wire = 0;  // free from then on
  for (const Bucket& bucket : plan) {
    double ready = 0;
    for (const auto& entry : bucket.entries) {
      const double came = profile.ready.at(static_cast<std::size_t>(entry.parameter));
      ready = std::max(ready, std::isnan(came) ? profile.backward : came);
    }
    const double takes = cost(bytes_of(bucket, travels_in));
    wire = std::max(wire, ready) + takes;
    found.communication += takes;
  }
  found.exposed = std::max(0.0, wire - profile.backward);
  found.step = profile.step() + found.exposed;
  return found;
}

std::vector<WhatIf> what_if(std::span<const ParameterSpec> parameters, const StepProfile& profile,
                            const CollectiveCost& cost, const WhatIfOptions& options) {
  PEAL_CHECK(profile.ready.size() == parameters.size(), "what_if: expected times of ",
             parameters.size(), " gradients, got ", profile.ready.size());
  const std::vector<int> order = options.order.empty() ? arrival_of(profile) : options.order;
  std::vector<WhatIf> table;
  for (const BucketCaps& each : options.caps.empty() ? usual_caps() : options.caps) {
    table.push_back(
        what_if(profile, plan_buckets(parameters, each, order), cost, options.travels_in));
    table.back().caps = each;
  }
  return table;
}

std::string describe(std::span<const WhatIf> table) {
  std::string text = fmt::format("{:>12} {:>8} {:>16} {:>11} {:>10}\n", "bucket cap", "buckets",
                                 "communication ms", "exposed ms", "step ms");
  const auto best = std::ranges::min_element(table, {}, &WhatIf::step);
  for (const WhatIf& each : table) {
    text += fmt::format("{:>12} {:>8} {:>16.3f} {:>11.3f} {:>10.3f}{}\n", cap_text(each.caps.bytes),
                        each.buckets, each.communication * 1e3, each.exposed * 1e3, each.step * 1e3,
                        &each == &*best ? "*" : "");
  }
  return text;
}

}  // namespace peal::nn
