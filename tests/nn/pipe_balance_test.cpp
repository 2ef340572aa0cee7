// SPDX-License-Identifier: Apache-2.0
// Balance of a pipeline: by count, by size and by measured time.
#include <peal/nn/layers/dropout.h>

#include <chrono>
#include <cstdint>
#include <thread>

#include "pipe_ranks.h"

using namespace peal;
using namespace peal::testing;

TEST_CASE("balance by count and by size") {
  using Parts = std::vector<int>;
  CHECK(nn::balance_by_count(10, 4) == Parts{3, 3, 2, 2});
  CHECK(nn::balance_by_count(3, 3) == Parts{1, 1, 1});
  CHECK(nn::balance_by_size(std::vector<std::int64_t>{1, 2, 3, 4, 5, 6}, 2) == Parts{4, 2});
  CHECK(nn::balance_by_size(std::vector<std::int64_t>{10, 1, 1, 1}, 3) == Parts{1, 2, 1});
  CHECK(nn::balance_by_size(std::vector<std::int64_t>{0, 0, 0}, 2) == Parts{2, 1});
  // As good as the best of all cuts.
  std::uint32_t state = 1;
  for (int round = 0; round < 200; ++round) {
    std::vector<std::int64_t> weights;
    for (int i = 0; i < 7; ++i) weights.push_back((state = state * 1664525u + 1013904223u) >> 28);
    const auto largest = [&](const Parts& cut) {
      std::int64_t most = 0;
      std::size_t next = 0;
      for (const int layers : cut) {
        std::int64_t sum = 0;
        for (int i = 0; i < layers; ++i) sum += weights[next++];
        most = std::max(most, sum);
      }
      CHECK(next == weights.size());
      return most;
    };
    std::int64_t best = 1 << 20;
    for (int a = 1; a < 6; ++a) {
      for (int b = 1; a + b < 7; ++b) best = std::min(best, largest({a, b, 7 - a - b}));
    }
    CHECK(largest(nn::balance_by_size(weights, 3)) == best);
  }
  CHECK_THROWS_WITH_AS(nn::balance_by_count(2, 3),
                       "pipe: expected a layer for each of 3 parts at least, got 2; take fewer "
                       "ranks or chunks",
                       Error);
}

namespace {

// Sleeping takes at least as long, whatever else the machine does; the shortest run counts.
struct Slow : nn::Module {
  Tensor forward(const Tensor& x) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    return x * 1.0;
  }
};

}  // namespace

TEST_CASE("balance by measured time, which leaves the model as it was") {
  ranks(3, [](const Group& group, int rank) {
    nn::Sequential net{nn::Linear(5, 5), nn::BatchNorm1d(5), nn::Dropout(0.5),
                       Slow(),           nn::Linear(5, 5),   Slow(),
                       nn::Linear(5, 2)};
    const State before = state_of(net);
    const Generator drawn = context().generator;
    const auto balance = nn::balance_by_time(group, net, full({4, 5}, 1.5), 3, 0);
    PEAL_CHECK(balance.size() == 3, "got ", balance.size(), " parts");
    PEAL_CHECK(balance[0] + balance[1] + balance[2] == 7);
    // Each of the slow ones, 3 and 5, has a part for itself and the third has the rest.
    const auto part_of = [&](int layer) {
      return (layer >= balance[0]) + (layer >= balance[0] + balance[1]);
    };
    PEAL_CHECK(part_of(3) != part_of(5), "got ", balance[0], " ", balance[1], " ", balance[2]);
    PEAL_CHECK(state_of(net) == before && context().generator.offset == drawn.offset,
               "the model has changed");
    for (const Tensor& p : net.parameters()) PEAL_CHECK(!p.grad().defined());
    for (const std::string& theirs : group.all_gather_object(concat(balance[0], balance[1]))) {
      PEAL_CHECK(theirs == concat(balance[0], balance[1]), "rank ", rank);
    }
    nn::Pipe pipe(group, net, {.micro_batches = 2, .balance = balance});
  });
}

TEST_CASE("what rank 0 cannot measure is an Error on all ranks, and the group goes on") {
  const auto said = heard(2, [](const Group& group, int) {
    const nn::Sequential net{nn::Linear(5, 5), nn::Linear(5, 2)};
    std::string error;
    try {
      nn::balance_by_time(group, net, full({4, 6}, 1.0), 2, 0);
    } catch (const Error& wrong) {
      error = wrong.what();
    }
    PEAL_CHECK(nn::balance_by_time(group, net, full({4, 5}, 1.0), 2, 0).size() == 2);
    throw Error(error);
  });
  for (const std::string& error : said)
    CHECK(error.find("the balance by time: rank 0") != error.npos);
}
