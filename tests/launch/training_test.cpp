// SPDX-License-Identifier: Apache-2.0
// The parts of a training program: evaluation by several ranks, and that ranks learn as one.
#include <doctest/doctest.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/profile.h>
#include <peal/comm/start/threads.h>
#include <peal/data/loader.h>
#include <peal/launch/training/evaluation.h>
#include <peal/launch/training/learner/learner.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/loss.h>
#include <peal/nn/metrics/classification.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/ddp.h>

#include "points.h"

#include <cmath>
#include <memory>
#include <string>
#include <vector>

using namespace peal;
using testing::Points;

TEST_CASE("ranks that judge their parts find what one finds who judges all") {
  const auto points = std::make_shared<Points>(37);
  const auto layer = [] {
    manual_seed(2);
    return nn::Linear(2, 3);
  };
  nn::Linear model = layer();
  data::DataLoader all(points, {.batch_size = 5});
  const double alone = launch::accuracy(model, all, comm::ProcessGroup::alone());
  CHECK(alone > 0);
  CHECK(alone < 1);
  CHECK(!model.training());
  for (const int world : {2, 3, 5}) {
    comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
      nn::Linear mine = layer();
      data::DataLoader part(points,
                            {.batch_size = 5, .shard = Place{group.rank(), world}, .exact = true});
      CHECK(launch::accuracy(mine, part, group) == alone);
    });
  }
}

TEST_CASE("an evaluation is that of one rank, whatever the size, the batch and the world") {
  const auto layer = [] {
    manual_seed(2);
    return nn::Linear(2, 3);
  };
  int cases = 0;
  for (const int world : {1, 2, 3, 8}) {
    for (const std::int64_t size : {1, world - 1, world, world + 1, 9, 97, 99, 499, 512, 10000}) {
      if (size == 0) continue;
      const auto points = std::make_shared<Points>(size);
      std::int64_t right = 0;
      {
        const NoGrad guard;
        const data::Batch all = points->get([&] {
          std::vector<std::int64_t> indices;
          for (std::int64_t i = 0; i < size; ++i) indices.push_back(i);
          return indices;
        }());
        const auto guesses = argmax(layer()(all.x), 1).to_vector<std::int64_t>();
        const auto classes = all.y.to_vector<std::int64_t>();
        for (std::size_t i = 0; i < classes.size(); ++i) right += guesses[i] == classes[i];
      }
      const double expected = static_cast<double>(right) / static_cast<double>(size);
      for (const std::int64_t batch_size : {1, 5, 16}) {
        CAPTURE(concat(size, " samples, ", world, " ranks, batches of ", batch_size));
        comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
          nn::Linear mine = layer();
          data::DataLoader part(
              points,
              {.batch_size = batch_size, .shard = Place{group.rank(), world}, .exact = true});
          REQUIRE(launch::accuracy(mine, part, group) == expected);
        });
        ++cases;
      }
    }
  }
  CHECK(cases == 4 * 10 * 3 - 3);
}

TEST_CASE("an evaluation keeps sums, and nothing of what the model gives") {
  struct Logits : data::Dataset {
    std::int64_t size() const override { return 20000; }
    data::Batch get(std::span<const std::int64_t> indices) const override {
      const auto n = std::ssize(indices);
      return {Tensor::zeros({n, 1000}), Tensor::zeros({n}, DType::i64)};
    }
  };
  struct Same : nn::Module {
    Tensor forward(const Tensor& x) override { return x * 1.0; }
  };
  const auto set = std::make_shared<Logits>();  // 80 MB of logits
  Same model;
  const auto before = memory_marks().tensors;
  data::DataLoader loader(set, {.batch_size = 50});
  CHECK(launch::accuracy(model, loader, comm::ProcessGroup::alone()) == 1);
  launch::Job job;
  launch::Learner learner(job, {nullptr, &loader}, model,
                          {.loss = nn::CrossEntropyLoss{},
                           .metrics = {{"accuracy", std::make_shared<nn::Accuracy>()}}});
  CHECK(learner.validate().at(1).value == 1);
  CHECK(memory_marks().tensors < before + (std::size_t{16} << 20));
}

TEST_CASE("an evaluation of nothing is an error, the same on all ranks") {
  for (const int world : {1, 3}) {
    comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
      nn::Linear model(2, 3);
      data::DataLoader none(std::make_shared<Points>(0),
                            {.shard = Place{group.rank(), world}, .exact = true});
      CHECK_THROWS_WITH_AS(launch::accuracy(model, none, group),
                           "[launch] evaluation: no rank has a sample to judge by", Error);
    });
  }
}

TEST_CASE("ranks judge one model, also when forwards without synchronisation came last") {
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    manual_seed(2);
    struct Normed : nn::Module {
      nn::BatchNorm1d norm = add("norm", nn::BatchNorm1d(2));
      nn::Linear fc = add("fc", nn::Linear(2, 3));
      Tensor forward(const Tensor& x) override { return fc(norm(x)); }
    } net;
    nn::DistributedDataParallel model(net, group);
    {
      const auto guard = model.no_sync();
      const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4}, {2, 2});
      sum(model(x * (group.rank() + 1.0))).backward();
    }
    data::DataLoader part(std::make_shared<Points>(37),
                          {.batch_size = 5, .shard = Place{group.rank(), 2}, .exact = true});
    const auto own = net.norm.running_mean.to_vector<float>();
    const Tensor of_rank0 = net.norm.running_mean.clone();
    group.broadcast(of_rank0, 0).wait();
    CHECK((own == of_rank0.to_vector<float>()) == (group.rank() == 0));
    launch::accuracy(model, part, group);
    CHECK(net.norm.running_mean.to_vector<float>() == of_rank0.to_vector<float>());
  });
}

TEST_CASE("ranks with their share of each batch learn what one process learns from all of it") {
  // y = 2 x + 3, as Accelerate's training_check has it; 96 samples are whole batches for all.
  struct Slope : data::Dataset {
    std::int64_t size() const override { return 96; }
    data::Batch get(std::span<const std::int64_t> indices) const override {
      std::vector<float> x, y;
      for (const std::int64_t index : indices) {
        x.push_back(static_cast<float>(index * 37 % 96) / 48 - 1);
        y.push_back(2 * x.back() + 3);
      }
      return {Tensor::from(x, {std::ssize(x), 1}), Tensor::from(y, {std::ssize(y), 1})};
    }
  };
  const auto set = std::make_shared<Slope>();
  const auto train = [&](const comm::ProcessGroup& group, const data::LoaderOptions& options) {
    manual_seed(4);
    nn::Linear net(1, 1);
    nn::DistributedDataParallel model(net, group);
    nn::SGD optimizer(model.named_parameters(), {.lr = 0.1});
    data::DataLoader loader(set, options);
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (const auto& [x, y] : loader) {
        optimizer.zero_grad();
        mse_loss(model(x), y).backward();
        optimizer.step();
      }
    }
    return std::vector<float>{net.weight.item<float>(), net.bias.item<float>()};
  };
  for (const int world : {2, 3}) {
    const auto alone =
        train(comm::ProcessGroup::alone(), {.batch_size = 8 * world, .shuffle = true, .seed = 6});
    CHECK(std::abs(alone[1] - 3) < 0.5);  // it learns
    for (const data::Way way :
         {data::Way::samples, data::Way::batches, data::Way::split, data::Way::dispatched}) {
      comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
        const auto mine = train(group, {.batch_size = way == data::Way::split ? 8 * world : 8,
                                        .shuffle = true,
                                        .shard = Place{group.rank(), world},
                                        .way = way,
                                        .seed = 6});
        CHECK(mine[0] == doctest::Approx(alone[0]).epsilon(1e-6));
        CHECK(mine[1] == doctest::Approx(alone[1]).epsilon(1e-6));
      });
    }
  }
}
