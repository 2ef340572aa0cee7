// SPDX-License-Identifier: Apache-2.0
// Streams of random numbers: which thread draws which.
#include <peal/autograd/core/context.h>

#include <doctest/doctest.h>

#include <set>
#include <thread>
#include <vector>

using namespace peal;

namespace {

std::uint32_t draw() {
  const RandomRange range = context().generator.reserve(1);
  return range.word(0);
}

}  // namespace

TEST_CASE("threads that were given no context draw streams of their own") {
  manual_seed(7);
  const std::uint64_t here = context().generator.seed;
  std::vector<std::uint64_t> seeds(8);
  std::vector<std::uint32_t> words(8);
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    std::thread([&, i] {
      seeds[i] = context().generator.seed;
      words[i] = draw();
    }).join();
  }
  const std::set<std::uint64_t> distinct(seeds.begin(), seeds.end());
  CHECK(distinct.size() == seeds.size());
  CHECK(!distinct.contains(0));
  CHECK(!distinct.contains(here));
  CHECK(std::set<std::uint32_t>(words.begin(), words.end()).size() == words.size());
}

TEST_CASE("a thread with its parent's context goes on where the parent was") {
  manual_seed(3);
  draw();
  std::uint32_t there = 0;
  std::thread(with_context([&] { there = draw(); })).join();
  CHECK(there == draw());
}

TEST_CASE("manual_seed reaches the thread that calls it, where the numbers can be repeated") {
  std::uint32_t first = 0, again = 0;
  for (std::uint32_t* word : {&first, &again}) {
    std::thread([word] {
      manual_seed(11);
      *word = draw();
    }).join();
  }
  CHECK(first == again);
}
