// SPDX-License-Identifier: Apache-2.0
// Join over a loader that shares batches out as they come: one rank has one more than the other,
// and both train as one process.
#include <peal/data/loader.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/join.h>

#include <span>
#include <vector>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

// Sample i: x = [i + 1, 1], y = i.
struct Line : data::Dataset {
  explicit Line(std::int64_t size) : count(size) {}
  std::int64_t size() const override { return count; }
  data::Batch get(std::span<const std::int64_t> indices) const override {
    std::vector<float> x;
    std::vector<std::int64_t> y;
    for (const std::int64_t i : indices) {
      x.insert(x.end(), {static_cast<float>(i + 1), 1});
      y.push_back(i);
    }
    const auto n = static_cast<std::int64_t>(indices.size());
    return {Tensor::from(x, {n, 2}), Tensor::from(y, {n})};
  }
  std::int64_t count;
};

Tensor loss_of(nn::Module& model, const data::Batch& batch) {
  const Tensor off = reshape(model(batch.x), {batch.y.numel()}) - cast(batch.y, DType::f32);
  return mean(off * off);
}

nn::Linear line() {
  nn::Linear model(2, 1);
  fill_(model.weight.detach(), 0);
  fill_(model.bias.detach(), 0);
  return model;
}

}  // namespace

TEST_CASE("three samples on two ranks are two turns an epoch, as in one process") {
  two([](const Group& group, int rank) {
    const auto set = std::make_shared<Line>(3);
    data::DataLoader loader(set, [&](std::int64_t) {
      return data::batch_shard({{0}, {1}, {2}}, 1, {rank, 2}, data::Tail::uneven);
    });
    nn::Linear model = line(), alone = line();
    DDP ddp(model, group);
    nn::SGD optimizer(ddp.parameters(), {.lr = 0.0625}), other(alone.parameters(), {.lr = 0.0625});
    nn::Join join(ddp, {.divide_by_initial_world_size = false});
    for (int epoch = 0; epoch < 2; ++epoch) {
      loader.set_epoch(epoch);
      CHECK(loader.left() == (rank == 0 ? 2 : 1));
      int turns = 0;
      for (; join.next(loader.has_next()); ++turns) {
        optimizer.zero_grad();
        if (join.active()) {
          loss_of(ddp, *loader.next()).backward();
        } else {
          CHECK(join.follow());
        }
        optimizer.step();
        other.zero_grad();
        const std::vector<std::int64_t> both{0, 1}, last{2};
        loss_of(alone, set->get(turns == 0 ? both : last)).backward();
        other.step();
        for (std::size_t p = 0; p < 2; ++p) {
          const auto mine = model.parameters()[p].to_vector<float>();
          const auto own = alone.parameters()[p].to_vector<float>();
          for (std::size_t i = 0; i < own.size(); ++i) CHECK(mine[i] == doctest::Approx(own[i]));
        }
      }
      CHECK(turns == 2);
    }
    CHECK(model.weight.to_vector<float>()[0] != 0);
  });
}

TEST_CASE(
    "turns in which all are sure to have a batch cost nothing, and the others what they did") {
  ranks(3, [](const Group& group, int rank) {
    nn::Linear model = line();
    DDP ddp(model, group, {.buckets = {.first_bytes = 1, .bytes = 1 << 20}});
    const auto set = std::make_shared<Line>(1);
    nn::Join join(ddp);
    for (int epoch = 0; epoch < 2; ++epoch) {
      const std::int64_t batches = 4 + rank;
      std::vector<std::uint64_t> words;  // collectives that begin a turn
      std::int64_t turn = 0;
      for (;; ++turn) {
        const std::uint64_t before = group.sequence();
        const std::int64_t left = batches - turn;
        const bool goes_on = join.next(left > 0, left - 1);
        words.push_back(group.sequence() - before);
        if (!goes_on) break;
        ddp.zero_grad();
        if (join.active()) {
          CHECK(join.active_ranks() == (turn < 4 ? 3 : turn < 5 ? 2 : 1));
          loss_of(ddp, set->get(std::vector<std::int64_t>{0})).backward();
        } else {
          CHECK(join.follow());
        }
        CHECK(same_everywhere(model.weight.grad(), group));
      }
      CHECK(turn == 6);
      REQUIRE(words.size() == 7);
      CHECK(std::vector<std::uint64_t>(words.begin(), words.begin() + 5) ==
            std::vector<std::uint64_t>{1, 0, 0, 0, 1});
    }
  });
}

TEST_CASE("a loop that is left early begins anew after restart()") {
  ranks(3, [](const Group& group, int rank) {
    nn::Linear model = line();
    DDP ddp(model, group);
    nn::Join join(ddp);
    const auto set = std::make_shared<Line>(1);
    // With ranks that have run out, too: rank 0 has 2 batches in the second epoch.
    for (const std::int64_t stop : {4, 3, 100}) {
      const std::int64_t batches = stop == 4 ? 10 : rank == 0 ? 2 : 5;
      std::int64_t turn = 0;
      for (; turn < stop; ++turn) {
        const std::int64_t left = batches - turn;
        if (!join.next(left > 0, left - 1)) break;
        ddp.zero_grad();
        if (join.active()) {
          loss_of(ddp, set->get(std::vector<std::int64_t>{0})).backward();
        } else {
          CHECK(join.follow());
        }
        CHECK(same_everywhere(model.weight.grad(), group));
      }
      CHECK(turn == std::min<std::int64_t>(stop, 5));
      if (stop != 100) join.restart();
    }
  });
}

TEST_CASE("a batch that was sure and is not there is told to all ranks") {
  std::atomic<int> told{0};
  CHECK_THROWS(ranks(3, [&](const Group& group, int rank) {
    nn::Linear model = line();
    DDP ddp(model, group);
    nn::Join join(ddp);
    try {
      for (int turn = 0; turn < 9; ++turn) {
        join.next(rank != 1 || turn < 2, 8 - turn);
        loss_of(ddp, Line(1).get(std::vector<std::int64_t>{0})).backward();
      }
    } catch (const Error& error) {
      const std::string text = error.what();
      if (text.find("rank 1: Join: this rank said that it would have 7 more") != text.npos) ++told;
      throw;
    }
  }));
  CHECK(told == 3);
}
