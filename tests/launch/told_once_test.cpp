// SPDX-License-Identifier: Apache-2.0
// What the ranks have to say alike is told once, and counted.
#include <peal/autograd/core/error.h>
#include <peal/launch/told_once.h>

#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace peal;
using peal::launch::told_once;
using Lines = std::vector<std::string>;

TEST_CASE("what ranks say alike but for their number is told once, and counted") {
  Lines eight;
  for (int rank = 0; rank < 8; ++rank) {
    eight.push_back(concat("[launch] rank ", rank, " is bound to 1 of 8 cores"));
  }
  CHECK(told_once(eight) == Lines{"[launch] rank 0 is bound to 1 of 8 cores (x8: ranks 0-7)"});
  CHECK(told_once({"rank 0 has a", "rank 1 has b", "", "rank 3 has a", "rank 4 has a"}) ==
        Lines{"rank 0 has a (x3: ranks 0,3-4)", "rank 1 has b"});
  CHECK(told_once({"", "only mine"}) == Lines{"only mine"});
  CHECK(told_once({}).empty());
  // Another's number is no part of what a rank says of itself.
  CHECK(told_once({"rank 0 waits for rank 2", "rank 1 waits for rank 3"}).size() == 2);
}
