// SPDX-License-Identifier: Apache-2.0
// How large buckets are where nobody says: what the model of the machine finds best, pinned.
#include <peal/comm/algorithms/world.h>
#include <peal/nn/parallel/bucket_size.h>

#include <doctest/doctest.h>

#include <cmath>
#include <string>

using namespace peal;
using namespace peal::nn;

namespace {

constexpr std::int64_t mib = std::int64_t{1} << 20;

// So many MiB, of a quarter each.
std::vector<ParameterSpec> model_of(std::int64_t size) {
  return {static_cast<std::size_t>(4 * size), {"p", Shape{1 << 16}, DType::f32, true}};
}

CollectiveCost line(double latency, double bytes_a_second) {
  return [=](double bytes) { return latency + bytes / bytes_a_second; };
}

std::int64_t chosen_mib(std::int64_t size, const CollectiveCost& cost) {
  return chosen_caps(model_of(size), {}, cost).bytes / mib;
}

}  // namespace

TEST_CASE("the chosen size is the smallest within 5 % of the shortest step in what_if's table") {
  for (const std::int64_t size : {3, 24, 98, 475}) {
    const auto parameters = model_of(size);
    for (const int ranks : {16, 64, 1024}) {
      for (const int node : {1, 8}) {
        for (const double slower : {1.0, 30.0}) {
          CAPTURE(size);
          CAPTURE(ranks);
          CAPTURE(node);
          const auto assumed = assumed_cost(comm::nodes_of(ranks, node));
          REQUIRE(assumed);
          const CollectiveCost cost = [&](double bytes) { return assumed(bytes) * slower; };
          const auto table = what_if(parameters, even_profile(parameters, cost), cost,
                                     {.caps = sizes_to_try(mib)});
          const std::string text = describe(table);
          CAPTURE(text);
          const BucketCaps chosen = chosen_caps(parameters, {}, cost);
          bool found = false;
          double best = table[0].step;
          for (const WhatIf& each : table) best = std::min(best, each.step);
          for (const WhatIf& each : table) {
            const bool is_it = each.caps.bytes == chosen.bytes;
            found = found || is_it;
            if (is_it) CHECK(each.step <= best * 1.05);
            if (each.caps.bytes < chosen.bytes) CHECK(each.step > best * 1.05);
          }
          REQUIRE(found);
          CHECK(chosen.first_bytes == mib);
          CHECK(chosen.last_bytes == mib);
          // The rule does not ask how fast the machine is in all, but what a latency is worth.
          CHECK(chosen.bytes == chosen_caps(parameters, {}, assumed).bytes);
        }
      }
    }
  }
}

TEST_CASE("the size is near the root of the model's bytes times those that one latency is worth") {
  for (const std::int64_t size : {64, 256, 1000}) {
    for (const double worth : {0.05, 0.25, 1.0, 4.0}) {  // MiB
      const double root = std::sqrt(static_cast<double>(size) * worth);
      const auto chosen = static_cast<double>(chosen_mib(size, line(worth * mib / 1e9, 1e9)));
      CAPTURE(size);
      CAPTURE(worth);
      CHECK(chosen >= std::min(root / 8, 25.0));
      CHECK(chosen <= std::max(root * 2, 1.0));
    }
  }
  CHECK(chosen_mib(100, line(0, 1e9)) == 1);    // nothing is lost by the smallest
  CHECK(chosen_mib(100, line(1, 1e12)) == 25);  // and much by each
}

TEST_CASE("what is assumed: 5 us a round, 100 Gbit/s a node, and nothing on one node") {
  CHECK(!assumed_cost(comm::nodes_of(8, 8)));
  CHECK(chosen_caps(model_of(100), {}, {}).bytes == 25 * mib);
  const auto two = assumed_cost(comm::nodes_of(2, 1));
  CHECK(two(1e9) == doctest::Approx(2 * 5e-6 + 1e9 * 8e-11).epsilon(1e-6));
  const auto shared = assumed_cost(comm::nodes_of(16, 8));
  CHECK(shared(16e8) == doctest::Approx(8 * 5e-6 + 2 * 15e8 * 8 * 8e-11).epsilon(1e-6));
  CHECK(chosen_caps(model_of(100), {.bytes = 7}, two).bytes == 7);
}

TEST_CASE("a model of nothing, and of frozen parameters, has a size too") {
  const auto cost = line(1e-5, 1e9);
  CHECK(chosen_caps({}, {}, cost).bytes == mib);
  const std::vector<ParameterSpec> frozen{{"p", Shape{1 << 20}, DType::f32, false}};
  CHECK(chosen_caps(frozen, {}, cost).bytes == mib);
}
