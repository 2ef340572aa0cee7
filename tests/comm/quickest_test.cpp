// SPDX-License-Identifier: Apache-2.0
// Rules that are made of measured times.
#include <peal/launch/tools/schedule/quickest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace peal;
using namespace peal::launch;
using comm::Collective;

namespace {

constexpr double never = std::numeric_limits<double>::infinity();

std::string rules(const std::vector<std::string>& algorithms, const std::vector<TimesAt>& sizes) {
  return comm::Rules(quickest_rules(Collective::all_reduce, algorithms, sizes)).text();
}

}  // namespace

TEST_CASE("what is lost is the mean over kinds of memory, and all of it where one cannot be used") {
  const auto lost = losses({4, {{1, 2, 4}, {1, 8, never}}});
  REQUIRE(lost.size() == 3);
  CHECK(lost[0] == 0);
  CHECK(lost[1] == doctest::Approx(std::log(4)));
  CHECK(lost[2] == never);
}

TEST_CASE("each size has its quickest, and the change is where they take the same") {
  CHECK(rules({"ring"}, {{4, {{1}}}, {64, {{2}}}}) == "all_reduce=ring");
  // Latency 1 and 2, and 4 times as much a byte for the first: on logarithmic scales the lines
  // cross in the middle.
  CHECK(rules({"slots", "direct_slices/4096"}, {{1024, {{1, 2}}}, {4096, {{4, 2}}}}) ==
        "all_reduce=slots:0-2048;direct_slices/4096:2049-max");
  // Of one that does not serve the next size, nobody knows where: half way.
  CHECK(rules({"slots", "ring"}, {{100, {{1, 2}}}, {10000, {{never, 9}}}}) ==
        "all_reduce=slots:0-1000;ring:1001-max");
  CHECK(rules({"slots", "ring", "swing"},
              {{16, {{1, 9, 9}}}, {64, {{9, 1, 9}}}, {256, {{9, 9, 1}}}}) ==
        "all_reduce=slots:0-32;ring:33-128;swing:129-max");
}

TEST_CASE("what noise makes of the times of equals changes nothing") {
  const std::vector<TimesAt> sizes = {
      {16, {{1.00, 1.01}}}, {64, {{1.02, 1.00}}}, {256, {{1.00, 1.02}}}, {1024, {{1.01, 1.00}}}};
  CHECK(quickest(sizes, 0.05) == std::vector<std::size_t>{0, 0, 0, 0});
  CHECK(quickest(sizes, 0) == std::vector<std::size_t>{0, 1, 0, 1});
}

TEST_CASE("a change that pays over several sizes is made, though at none of them alone") {
  CHECK(quickest({{16, {{1, 2}}}, {64, {{1.04, 1}}}, {256, {{1.04, 1}}}}, 0.05) ==
        std::vector<std::size_t>{0, 1, 1});
}

TEST_CASE("both kinds of memory count alike") {
  CHECK(quickest({{16, {{1, 1.2}, {1.5, 1}}}}, 0.05) == std::vector<std::size_t>{1});
}
