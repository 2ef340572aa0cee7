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
