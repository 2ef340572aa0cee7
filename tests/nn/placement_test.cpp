// SPDX-License-Identifier: Apache-2.0
// Who owns which parameter, and what owners send together.
#include <peal/autograd/core/error.h>
#include <peal/nn/models/basic_net.h>
#include <peal/nn/parallel/sharded/placement.h>
#include <peal/tests/errors.h>

#include <doctest/doctest.h>
#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

using namespace peal;
using namespace peal::testing;

namespace {

using Counts = std::vector<std::int64_t>;
using Owners = std::vector<int>;

}  // namespace

TEST_CASE("owners and loads are FairScale's") {
  const nn::Placement three = nn::place_greedily(Counts{10, 1, 1, 1, 7, 3}, 3);
  CHECK(three.owners == Owners{0, 1, 2, 1, 2, 1});
  CHECK(three.loads() == Counts{10, 5, 8});

  Counts sizes;
  for (const auto& [name, tensor] : nn::BasicNet().named_parameters()) {
    sizes.push_back(tensor.numel());
  }
  const nn::Placement two = nn::place_greedily(sizes, 2);
  CHECK(two.owners == Owners{0, 1, 1, 0, 0, 1, 1, 1});
  CHECK(two.loads() == Counts{1180000, 19882});
  CHECK(nn::place_greedily(sizes, 4).loads() == Counts{298, 1179680, 18432, 1472});

  Counts repeated;
  for (int i = 0; i < 4; ++i) repeated.insert(repeated.end(), {9, 7, 5, 3});
  CHECK(nn::place_greedily(repeated, 4).loads() == Counts{24, 24, 24, 24});

  CHECK(nn::place_greedily(Counts{4, 2}, 4).loads() == Counts{4, 2, 0, 0});
  CHECK(nn::place_greedily(Counts{}, 2).loads() == Counts{0, 0});
}

TEST_CASE("parameters that come later change nothing, and no rank has more than the mean and one") {
  std::mt19937 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    const int world = 1 + static_cast<int>(random() % 9);
    Counts counts(random() % 40);
    for (auto& count : counts) count = static_cast<std::int64_t>(random() % 1000);
    const nn::Placement whole = nn::place_greedily(counts, world);
    const auto cut = static_cast<std::ptrdiff_t>(counts.empty() ? 0 : random() % counts.size());
    const nn::Placement part =
        nn::place_greedily(Counts(counts.begin(), counts.begin() + cut), world);
    REQUIRE(nn::place_greedily(counts, world, part) == whole);
    const Counts loads = whole.loads();
    const std::int64_t sum = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    REQUIRE(std::accumulate(loads.begin(), loads.end(), std::int64_t{0}) == sum);
    const std::int64_t largest = counts.empty() ? 0 : *std::ranges::max_element(counts);
    REQUIRE(*std::ranges::max_element(loads) <= sum / world + largest);
  }
}

TEST_CASE("a placement is printed as a table") {
  const std::vector<std::string> names{"fc1.weight", "fc1.bias", "head"};
  CHECK(nn::describe(nn::place_greedily(Counts{12, 4, 4}, 2), names) ==
        "parameter      elements  owner\n"
        "fc1.weight           12      0\n"
        "fc1.bias              4      1\n"
        "head                  4      1\n"
        "rank 0: 1 parameters, 12 elements\n"
        "rank 1: 2 parameters, 8 elements\n");
}

TEST_CASE("small parameters of an owner travel together, and large ones alone") {
  const nn::Placement placement{2, {0, 1, 0, 1, 0, 0, 1}, {1, 1, 1, 1, 1, 1, 1}};
  using Messages = std::vector<nn::Message>;
  const Owners one_kind(7, 0);
  CHECK(nn::plan_messages(placement, Counts{4, 4, 100, 0, 4, 4, 8}, one_kind, 10) ==
        Messages{{0, {2}}, {0, {0, 4}}, {1, {1}}, {0, {5}}, {1, {6}}});
  CHECK(nn::plan_messages(placement, Counts{1, 1, 1, 1, 1, 1, 1}, Owners{0, 0, 2, 0, 0, 2, 0},
                          10) == Messages{{0, {0, 4}}, {0, {2, 5}}, {1, {1, 3, 6}}});
  CHECK(nn::plan_messages(placement, Counts(7, 0), one_kind, 10).empty());
}

TEST_CASE("what no placement can be made of is an error") {
  const nn::Placement two = nn::place_greedily(Counts{1, 2, 3}, 2);
  check_has(error_of([] { nn::place_greedily(Counts{1}, 0); }), "expected 1 rank or more, got 0");
  check_has(error_of([] { nn::place_greedily(Counts{1, -2}, 2); }), "parameter 1 counts -2");
  check_has(error_of([&] {
              nn::place_greedily(Counts{1, 2, 3, 4}, 3, two);
            }),
            "made for 2 ranks, and there are 3");
  check_has(error_of([&] { nn::place_greedily(Counts{1}, 2, two); }),
            "there were 3 parameters, and 1 came");
  check_has(error_of([&] { nn::describe(two, std::vector<std::string>{"a"}); }),
            "1 names came for 3 parameters");
}
