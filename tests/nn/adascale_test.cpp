// SPDX-License-Identifier: Apache-2.0
// AdaScale: the published gains, over ranks and over what a rank accumulates; states and misuse.
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/threads.h>
#include <peal/nn/layers/linear.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/adascale.h>
#include <peal/nn/parallel/ddp.h>
#include <peal/nn/parallel/sharded/sharded_ddp.h>
#include <peal/nn/parallel/sharded/zero_redundancy_optimizer.h>
#include <peal/tests/errors.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

using namespace peal;
using comm::run_ranks;
using Group = comm::ProcessGroup;
using doctest::Approx;
using testing::check_has;
using testing::error_of;

namespace {

using Rows = std::vector<std::vector<double>>;

Tensor row(const std::vector<double>& values) {
  return Tensor::from(values, {1, static_cast<std::int64_t>(values.size())});
}

// A linear layer of two inputs and outputs, in f64.
nn::Linear two_by_two() {
  nn::Linear layer(2, 2);
  layer.to(DType::f64);
  return layer;
}

// The gain where each part of the batch is a row of two numbers, and the loss the sum of a linear
// layer's outputs. All rows on one rank, which accumulates them, or one on each.
double gain_of(const Rows& rows, bool accumulate, nn::AdaScaleOptions options = {}) {
  double gain = 0;
  const int world = accumulate ? 1 : static_cast<int>(rows.size());
  run_ranks(world, [&](const Group& group) {
    nn::DistributedDataParallel ddp(two_by_two(), group);
    nn::SGD sgd(ddp.parameters(), {.lr = 0.1});
    if (accumulate) options.num_gradients_to_accumulate = static_cast<std::int64_t>(rows.size());
    nn::AdaScale optimizer(sgd, group, options);
    CHECK(optimizer.gain() == 1);
    CHECK(optimizer.parts() == static_cast<std::int64_t>(rows.size()));
    optimizer.zero_grad();
    const double each = options.is_scaled_loss && accumulate ? static_cast<double>(rows.size()) : 1;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (!accumulate && static_cast<int>(i) != group.rank()) continue;
      std::unique_ptr<nn::DistributedDataParallel::NoSync> part;
      if (accumulate && i + 1 < rows.size()) part.reset(new auto(ddp.no_sync()));
      (sum(ddp(row(rows[i]))) / each).backward();
    }
    optimizer.step();
    CHECK(sgd.lr() == 0.1);
    if (group.rank() == 0) gain = optimizer.gain();
  });
  return gain;
}

// A parameter of one number, whose gradient is what the loss is multiplied by.
double gain_of_numbers(const std::vector<double>& numbers) {
  double gain = 0;
  run_ranks(static_cast<int>(numbers.size()), [&](const Group& group) {
    const Tensor x = Tensor(Tensor::zeros({1}, DType::f64)).set_requires_grad();
    nn::SGD sgd({x}, {.lr = 1});
    nn::AdaScale optimizer(sgd, group);
    sum(x * numbers[static_cast<std::size_t>(group.rank())]).backward();
    const Tensor grad = x.grad();
    group.all_reduce(grad, comm::ReduceOp::avg).wait();
    const double mean = grad.item<double>();
    optimizer.step();
    // One step of the rate times the gain.
    CHECK(x.item<double>() == Approx(-mean * optimizer.gain()).epsilon(1e-12));
    if (group.rank() == 0) gain = optimizer.gain();
  });
  return gain;
}

}  // namespace

TEST_CASE("AdaScale's gains are the published ones, over ranks and over accumulated gradients") {
  const std::vector<std::pair<Rows, double>> cases = {{{{1, 0}, {0, 1}}, 4.0 / 3},
                                                      {{{1, 4}, {5, 0.5}}, 1.4688796680497926},
                                                      {{{-0.2, 3}, {5, 0.5}}, 1.8472893884},
                                                      {{{-1, 1}, {1, -1}}, 2}};
  for (const auto& [rows, expected] : cases) {
    for (const bool accumulate : {false, true}) {
      CAPTURE(expected);
      CAPTURE(accumulate);
      CHECK(gain_of(rows, accumulate) == Approx(expected).epsilon(1e-6));
    }
    CHECK(gain_of(rows, true, {.is_scaled_loss = false}) == Approx(expected).epsilon(1e-6));
  }
}

TEST_CASE("AdaScale's gain goes from 1, where parts are alike, to their number") {
  CHECK(gain_of_numbers({3, 3}) == Approx(1).epsilon(1e-6));
  CHECK(gain_of_numbers({3, 1}) == Approx(1.25).epsilon(1e-6));
  CHECK(gain_of_numbers({1, 2, 3, 4}) == Approx(1.2).epsilon(1e-6));
  CHECK(gain_of_numbers({1, -1}) == Approx(2).epsilon(1e-6));
  // The variance is at least 1e-6, so nothing at all is noise: here |m|^2 is 0 and 1e-6.
  CHECK(gain_of_numbers({0, 0}) == Approx(2).epsilon(1e-9));
  CHECK(gain_of_numbers({1e-3, 1e-3}) == Approx(4.0 / 3).epsilon(1e-9));
}

TEST_CASE("AdaScale keeps 1 - parts / 1000 of its past by itself, and nothing from there on") {
  const auto second_gain = [](std::int64_t parts) {
    const Tensor x = Tensor(Tensor::zeros({1}, DType::f64)).set_requires_grad();
    nn::SGD sgd({x}, {.lr = 0});
    nn::AdaScale optimizer(sgd, {}, {.num_gradients_to_accumulate = parts});
    for (const auto& [even, odd] : {std::pair(3, 1), std::pair(1, -1)}) {
      optimizer.zero_grad();
      for (std::int64_t i = 0; i < parts; ++i) {
        (sum(x * (i % 2 == 0 ? even : odd)) / static_cast<double>(parts)).backward();
      }
      optimizer.step();
    }
    return optimizer.gain();
  };
  // In the first step |m|^2 is 4 and the squares of the parts are 5 on average, in the second 0 and
  // 1: var = n / (n - 1) in both, and sqr = 4 - 1 / (n - 1) and 0, of which the first has s / (1 +
  // s) of the weight.
  const auto expected = [](double n, double past) {
    const double var = n / (n - 1), sqr = (4 - 1 / (n - 1)) * past / (1 + past);
    return (var + sqr) / (var / n + sqr);
  };
  CHECK(second_gain(2) == Approx(expected(2, 0.998)).epsilon(1e-9));
  CHECK(second_gain(500) == Approx(expected(500, 0.5)).epsilon(1e-9));
  CHECK(second_gain(1500) == Approx(1500).epsilon(1e-9));
}

TEST_CASE("AdaScale: groups have gains and rates of their own, averages go on in a loaded state") {
  run_ranks(2, [](const Group& group) {
    const auto number = [] { return Tensor(Tensor::zeros({1}, DType::f64)).set_requires_grad(); };
    const bool first = group.rank() == 0;
    const Tensor same = number(), differs = number();
    nn::SGD sgd({{{same}, {.lr = 1}}, {{differs}, {.lr = 0.5}}});
    nn::AdaScale optimizer(sgd, group, {.smoothing = 0.5});
    const auto step = [&](nn::AdaScale& scaled, double mine) {
      scaled.zero_grad();
      (sum(same * 3) + sum(differs * mine)).backward();
      group.all_reduce(differs.grad(), comm::ReduceOp::avg).wait();
      scaled.step();
    };
    step(optimizer, first ? 3 : 1);  // var 2, sqr 3
    CHECK(optimizer.gain(0) == Approx(1).epsilon(1e-6));
    CHECK(optimizer.gain(1) == Approx(1.25).epsilon(1e-12));
    CHECK(same.item<double>() == Approx(-3).epsilon(1e-6));
    CHECK(differs.item<double>() == Approx(-0.5 * 2 * 1.25).epsilon(1e-12));
    CHECK(sgd.lr(0) == 1);
    CHECK(sgd.lr(1) == 0.5);
    const NamedTensors saved = optimizer.state_dict();
    step(optimizer, first ? 1 : -1);  // var 2, sqr 0: with the first's half of the weight
    const double expected = (2 + 1) / (1.0 + 1);
    CHECK(optimizer.gain(1) == Approx(expected).epsilon(1e-12));

    nn::SGD other({{{number()}, {.lr = 1}}, {{number()}, {.lr = 0.5}}});
    nn::AdaScale loaded(other, group, {.smoothing = 0.5});
    loaded.load_state_dict(saved);
    CHECK(loaded.gain(1) == Approx(1.25).epsilon(1e-12));
    check_has(error_of([&] { loaded.gain(2); }), "expected a group below 2, got 2");
  });
}

TEST_CASE("AdaScale: averages of four ranks go on with two, whose scale is their own") {
  NamedTensors saved;
  for (const int world : {4, 2}) {
    run_ranks(world, [&](const Group& group) {
      const Tensor x = Tensor(Tensor::zeros({1}, DType::f64)).set_requires_grad();
      nn::SGD sgd({x}, {.lr = 0});
      nn::AdaScale optimizer(sgd, group, {.smoothing = 0.0});
      if (world == 2) {
        optimizer.load_state_dict(saved);
        CHECK(optimizer.scale() == 2);
        CHECK(optimizer.gain() == 2);  // what was measured: no mean, variance alone
      }
      sum(x * (group.rank() % 2 == 0 ? 1 : -1)).backward();
      group.all_reduce(x.grad(), comm::ReduceOp::avg).wait();
      optimizer.step();
      CHECK(optimizer.gain() == world);
      if (world == 4 && group.rank() == 0) saved = optimizer.state_dict();
    });
  }
}

TEST_CASE("AdaScale: gradients that owners alone have are an error on all ranks") {
  run_ranks(2, [](const Group& group) {
    const nn::Linear layer = two_by_two();
    nn::ZeroRedundancyOptimizer<nn::SGD> sgd(group, layer.named_parameters(),
                                             nn::SGDOptions{.lr = 0.1});
    nn::ShardedDDP ddp(layer, sgd.shards());
    nn::AdaScale optimizer(sgd, group);
    sum(ddp(row({1, 2}))).backward();
    const std::string error = error_of([&] { optimizer.step(); });
    check_has(error, "AdaScale");
    check_has(error, "has none now (ShardedDDP leaves it with its owner");
  });
}

TEST_CASE("AdaScale: gradients that are not finite leave the averages as they are") {
  run_ranks(2, [](const Group& group) {
    const Tensor x = Tensor(Tensor::zeros({1}, DType::f64)).set_requires_grad();
    nn::SGD sgd({x}, {.lr = 0});
    nn::AdaScale optimizer(sgd, group);
    for (const double factor : {3.0, 1e200}) {
      optimizer.zero_grad();
      sum(x * (group.rank() == 0 ? factor : 1)).backward();
      group.all_reduce(x.grad(), comm::ReduceOp::avg).wait();
      optimizer.step();
      CHECK(optimizer.gain() == Approx(1.25).epsilon(1e-6));
    }
  });
}

TEST_CASE("AdaScale: what makes no sense is an error, on all ranks") {
  const Tensor x = Tensor(Tensor::zeros({1})).set_requires_grad();
  nn::SGD sgd({x}, {.lr = 1});
  check_has(error_of([&] { nn::AdaScale(sgd, {}); }), "has nothing to compare");
  check_has(error_of([&] { nn::AdaScale(sgd, {}, {.num_gradients_to_accumulate = 0}); }),
            "expected num_gradients_to_accumulate of 1 or more");
  run_ranks(3, [](const Group& group) {
    const bool last = group.rank() == 2;
    const Tensor y = Tensor(Tensor::zeros({1})).set_requires_grad();
    nn::SGD optimizer({y}, {.lr = 1});
    {
      nn::AdaScale differs(optimizer, group, {.scale = last ? 2.0 : 3.0});
      check_has(error_of([&] { differs.step(); }), "scale");
    }
    nn::AdaScale scaled(optimizer, group);
    for (int i = 0; i < (last ? 2 : 1); ++i) sum(y * 2).backward();
    const std::string error = error_of([&] { scaled.step(); });
    check_has(error, last ? "rank 2: parameter 0 had 2 gradients" : "other ranks had another");
    check_has(error, "expected 1 (num_gradients_to_accumulate)");
    CHECK(y.item<float>() == 0);
    scaled.zero_grad();
    sum(y * 2).backward();
    scaled.step();
    CHECK(y.item<float>() == Approx(-2).epsilon(1e-5));
  });
}
