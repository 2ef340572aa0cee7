// SPDX-License-Identifier: Apache-2.0
// The communication hooks that come along: each gives what one process computes that sees all
// ranks' gradients and does the same to them.
#include <peal/nn/layers/layers.h>
#include <peal/nn/parallel/compress_hooks.h>
#include <peal/nn/parallel/join.h>
#include <peal/nn/parallel/local_sgd.h>
#include <peal/nn/parallel/power_sgd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "ddp_ranks.h"
#include "power_sgd_simulation.h"

using namespace peal;
using namespace peal::testing;

namespace {

using Values = std::vector<float>;

struct Net : nn::Sequential {
  Net() : nn::Sequential(nn::mlp({6, 20, 5})) {}
};

// Gradients that few bits cannot hold.
Tensor fine_loss(nn::Module& model, double value) {
  const Tensor y = model(full({2, 6}, 0.3 + 0.1 * value));
  return sum(y * y) * 1.001;
}

// What lies in the buckets of each rank, by [bucket][rank], before anything is sent.
std::vector<std::vector<Values>> memories(nn::Module copy, const std::vector<nn::Bucket>& plan,
                                          int world, int step) {
  std::vector<std::vector<Values>> all(plan.size());
  for (int rank = 0; rank < world; ++rank) {
    copy.zero_grad();
    fine_loss(copy, rank + 2 * step).backward();
    const std::vector<Tensor> parameters = copy.parameters();
    for (std::size_t b = 0; b < plan.size(); ++b) {
      Values& memory = all[b].emplace_back(plan[b].count, 0.0F);
      for (const auto& [parameter, at] : plan[b].entries) {
        const Values grad =
            parameters[static_cast<std::size_t>(parameter)].grad().to_vector<float>();
        std::copy(grad.begin(), grad.end(), memory.begin() + at);
      }
    }
  }
  copy.zero_grad();
  return all;
}

Tensor tensor_of(const Values& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}

void check_buckets(const nn::Module& model, const std::vector<nn::Bucket>& plan,
                   const std::vector<Values>& expected, double tolerance = 0) {
  const NamedTensors parameters = model.named_parameters();
  for (std::size_t b = 0; b < plan.size(); ++b) {
    for (const auto& [parameter, at] : plan[b].entries) {
      const auto& [name, tensor] = parameters[static_cast<std::size_t>(parameter)];
      CAPTURE(name);
      const Values mine = tensor.grad().to_vector<float>();
      for (std::size_t i = 0; i < mine.size(); ++i) {
        const float want = expected[b][static_cast<std::size_t>(at) + i];
        if (tolerance == 0) {
          REQUIRE(mine[i] == want);
        } else {
          REQUIRE(std::abs(mine[i] - want) <= tolerance);
        }
      }
    }
  }
}

using Round = std::function<Tensor(const Tensor& wide)>;  // what is left of numbers that are sent

// Two steps under a hook that sends rounded parts and gathers rounded averages.
void check_rounding(int world, const nn::BucketCaps& caps,
                    const std::function<nn::CommHook(const Group&)>& hook, const Round& round) {
  ranks(world, [&](const Group& group, int rank) {
    Net net, copy;
    DDP ddp(net, group, {.buckets = caps, .order = start_order(net)});
    manual_seed(1);
    copy.load_state_dict(net.state_dict());
    ddp.register_comm_hook(hook(group));
    const auto& plan = ddp.reducer().buckets();
    for (int step = 0; step < 2; ++step) {
      std::vector<Values> expected;
      for (const auto& by_rank : memories(copy, plan, world, step)) {
        Tensor total;
        for (const Values& memory : by_rank) {
          const Tensor sent = round(tensor_of(memory));
          total = total.defined() ? total + sent : sent;
        }
        expected.push_back(round(total / world).to_vector<float>());
      }
      ddp.zero_grad();
      fine_loss(ddp, rank + 2 * step).backward();
      check_buckets(ddp, plan, expected);
    }
  });
}

}  // namespace

TEST_CASE("f16 and bf16: what travels is rounded, sums are f32, and the average is rounded") {
  for (const nn::BucketCaps& caps : {nn::BucketCaps{}, apart}) {
    for (const int world : {1, 3, 4}) {
      CAPTURE(world);
      const auto to = [](DType dtype) {
        return [dtype](const Tensor& x) { return cast(cast(x, dtype), DType::f32); };
      };
      check_rounding(world, caps, nn::fp16_compress_hook, to(DType::f16));
      check_rounding(world, caps, nn::bf16_compress_hook, to(DType::bf16));
    }
  }
}

TEST_CASE("int8: blocks of 256 with a scale each") {
  const Round round = [](const Tensor& x) {
    const std::int64_t blocks = (x.numel() + 255) / 256;
    const Tensor wide = Tensor::zeros({blocks * 256});
    wide.detach(x.shape()).copy_(x);
    return nn::from_int8(nn::to_int8(wide)).detach(x.shape());
  };
  for (const int world : {1, 3, 4}) {
    CAPTURE(world);
    check_rounding(world, {}, nn::int8_compress_hook, round);
    check_rounding(world, apart, nn::int8_compress_hook, round);
  }
}

TEST_CASE("int8: how far off numbers are, and what cannot be held") {
  Values values(512, 0.0F);
  for (std::size_t i = 0; i < 256; ++i) values[i] = static_cast<float>(std::sin(i) * 3);
  const Tensor x = tensor_of(values);
  const auto blocks = nn::to_int8(x);
  CHECK(blocks.codes.numel() == 512);
  CHECK(blocks.scales.shape() == Shape{2, 1});
  const Values back = nn::from_int8(blocks).to_vector<float>();
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < 512; ++i) CHECK(std::abs(back[i] - values[i]) <= largest / 253);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    values[3] = bad;
    const Values lost = nn::from_int8(nn::to_int8(tensor_of(values))).to_vector<float>();
    for (const std::size_t i : {3, 10}) CHECK(std::isnan(lost[i]));
    CHECK(lost[300] == 0);
  }
}

TEST_CASE("buckets of two bytes an element are averaged as they are") {
  two([](const Group& group, int rank) {
    nn::Linear net(3, 2);
    net.to(DType::bf16);
    DDP ddp(net, group);
    ddp.register_comm_hook(nn::fp16_compress_hook(group));
    const Tensor y = ddp(full({2, 3}, rank + 1, DType::bf16));
    sum(y).backward();
    CHECK(cast(net.weight.grad(), DType::f32).to_vector<float>() == Values(6, 3.0F));
  });
}

TEST_CASE("PowerSGD equals its simulation in f64, with error feedback and a warm start") {
  for (const std::int64_t r : {1, 2}) {
    ranks(3, [&](const Group& group, int rank) {
      Net net, copy;
      DDP ddp(net, group, {.order = start_order(net)});
      copy.load_state_dict(net.state_dict());
      const auto& plan = ddp.reducer().buckets();
      nn::PowerSGD power(group, {.matrix_approximation_rank = r, .start_powerSGD_iter = 1});
      ddp.register_comm_hook(power.hook());
      std::vector<Shape> shapes;
      for (const Tensor& p : net.parameters()) shapes.push_back(p.shape());

      PowerSGDSimulation simulation{.r = r};
      for (const nn::Bucket& bucket : plan) simulation.add(bucket, shapes, 3);
      // [20, 6] and [5, 20]; the second does not shrink by 2 where r is 2.
      CHECK(simulation.q[0].size() == (r == 1 ? 6 + 20 : 2 * 6));
      NamedTensors state = power.state_dict();
      state[0].second = Tensor::scalar(std::int64_t{5}, Device{});
      for (std::size_t b = 0; b < plan.size(); ++b) {
        for (auto& each : simulation.state_of(b, plan[b], net.named_parameters())) {
          state.push_back(std::move(each));
        }
      }
      power.load_state_dict(state);
      for (int step = 0; step < 4; ++step) {
        const auto memory = memories(copy, plan, 3, step);
        std::vector<Values> expected;
        for (std::size_t b = 0; b < plan.size(); ++b) {
          std::vector<PowerSGDSimulation::Wide> sent;
          for (const Values& mine : memory[b]) sent.emplace_back(mine.begin(), mine.end());
          const auto got = simulation.step(b, plan[b], shapes, sent);
          expected.emplace_back(got.begin(), got.end());
        }
        ddp.zero_grad();
        fine_loss(ddp, rank + 2 * step).backward();
        check_buckets(ddp, plan, expected, 2e-3);
        for (const Tensor& p : net.parameters()) CHECK(same_everywhere(p.grad(), group));
      }
      CHECK(power.iteration() == 9);
    });
  }
}

TEST_CASE("PowerSGD is of rank 1, and begins with the eleventh step, unless told otherwise") {
  const nn::PowerSGDOptions options;
  CHECK(options.matrix_approximation_rank == 1);
  CHECK(options.start_powerSGD_iter == 10);
  CHECK(options.use_error_feedback);
  CHECK(options.warm_start);
}

TEST_CASE("PowerSGD averages before its start, and goes on from its state bit by bit") {
  two([](const Group& group, int rank) {
    Net net, alone;
    make_whole(net);
    make_whole(alone);
    DDP ddp(net, group);
    nn::PowerSGD power(group, {.start_powerSGD_iter = 2});
    ddp.register_comm_hook(power.hook());
    const auto step = [&](int k) {
      ddp.zero_grad();
      fine_loss(ddp, rank + k).backward();
      std::vector<Values> all;
      for (const Tensor& p : net.parameters()) all.push_back(p.grad().to_vector<float>());
      return all;
    };
    for (int k = 0; k < 2; ++k) {
      alone.zero_grad();
      fine_loss(alone, rank + k).backward();
      step(k);
      check_averaged(net, alone, group);
    }
    step(2);
    NamedTensors saved;
    for (const auto& [name, tensor] : power.state_dict()) saved.emplace_back(name, tensor.clone());
    REQUIRE(saved.size() == 5);  // of both weights
    const auto third = step(3), fourth = step(4);
    nn::PowerSGD other(group, {.start_powerSGD_iter = 2});
    other.load_state_dict(saved);
    ddp.register_comm_hook(other.hook());
    CHECK(step(3) == third);
    CHECK(step(4) == fourth);
    saved.emplace_back("1.weight.r", saved[1].second);
    CHECK_THROWS_WITH(other.load_state_dict(saved), doctest::Contains("1.weight.r"));
    CHECK_THROWS_WITH(nn::PowerSGD(group, {.matrix_approximation_rank = 0}),
                      doctest::Contains("a matrix_approximation_rank of 1 or more"));
  });
}

TEST_CASE("PowerSGD forgets a step that overflowed, and a gradient that was zero comes back") {
  two([](const Group& group, int rank) {
    Net net;
    DDP ddp(net, group);
    nn::PowerSGD power(group, {.start_powerSGD_iter = 1});
    ddp.register_comm_hook(power.hook());
    const Tensor weight = net.parameters()[0];
    const auto finite = [&] {
      bool all = true;
      for (const float value : weight.grad().to_vector<float>()) all = all && std::isfinite(value);
      return all;
    };
    for (const double scale : {1.0, 1.0, 0.0, 1.0, std::numeric_limits<double>::infinity(), 1.0}) {
      ddp.zero_grad();
      (fine_loss(ddp, rank) * scale).backward();
      CHECK(finite() == std::isfinite(scale));
      if (scale == 1) CHECK(sum(abs(weight.grad())).item<float>() > 0.01F);
    }
  });
}

TEST_CASE("a hook that sends nothing keeps each rank's own") {
  two([](const Group& group, int rank) {
    Twins<Mlp> pair(group);
    pair.ddp->register_comm_hook(nn::noop_hook());
    const std::uint64_t before = group.sequence();
    loss(*pair.ddp, rank + 1).backward();
    CHECK(group.sequence() == before);
    loss(pair.alone, rank + 1).backward();
    const auto mine = pair.model.parameters(), own = pair.alone.parameters();
    for (std::size_t i = 0; i < mine.size(); ++i) {
      CHECK(mine[i].grad().to_vector<float>() == own[i].grad().to_vector<float>());
    }
  });
}

TEST_CASE("post-local SGD averages over all, then over a part, and parameters now and then") {
  for (const bool parts : {true, false}) {
    ranks(4, [&](const Group& group, int rank) {
      const Group pair = parts ? group.split(rank / 2) : Group();
      const Group alone_group = group.split(rank);
      Twins<Mlp> twins(group);
      nn::PostLocalSGDState state(group, pair, {.start_localSGD_iter = 2});
      twins.ddp->register_comm_hook(nn::post_localSGD_hook(state));
      for (int k = 0; k < 5; ++k) {
        if (k > 2) {  // goes on where a run stopped
          nn::PostLocalSGDState again(group, pair, {.start_localSGD_iter = 2});
          again.load_state_dict(state.state_dict());
          CHECK(again.step() == k);
          twins.ddp->register_comm_hook(nn::post_localSGD_hook(again));
          state = again;
        }
        twins.model.zero_grad();
        twins.alone.zero_grad();
        loss(*twins.ddp, rank + k).backward();
        loss(twins.alone, rank + k).backward();
        check_averaged(twins.model, twins.alone, k < 2 ? group : (parts ? pair : alone_group));
      }
      std::optional<nn::PeriodicModelAverager> averager;
      const std::vector<Tensor> parameters = twins.model.parameters();
      NamedTensors saved;
      for (int k = 0; k < 4; ++k) {
        averager.emplace(group, nn::PeriodicModelAveragerOptions{.period = 2, .warmup_steps = 1});
        if (k > 0) averager->load_state_dict(saved);
        fill_(parameters[0].detach(), rank + k);
        averager->average_parameters(parameters);
        saved = averager->state_dict();
        const bool averaged = k == 1 || k == 3;
        CHECK(parameters[0].to_vector<float>()[0] ==
              (averaged ? 1.5F : static_cast<float>(rank)) + static_cast<float>(k));
      }
    });
  }
}

TEST_CASE("samples and ranks without a batch meet hooks that do not average over all") {
  two([](const Group& group, int rank) {
    Twins<Mlp> twins(group, {.buckets = apart});
    const auto check_own = [&](double divisor) {
      twins.alone.zero_grad();
      loss(twins.alone, rank + 1).backward();
      const auto mine = twins.model.parameters(), own = twins.alone.parameters();
      for (std::size_t i = 0; i < mine.size(); ++i) {
        const auto want = (own[i].grad() / divisor).to_vector<float>();
        CHECK(mine[i].grad().to_vector<float>() == want);
      }
    };
    twins.ddp->register_comm_hook(nn::noop_hook());
    twins.ddp->backward(loss(*twins.ddp, rank + 1), 4.0 * rank + 4);  // of its own samples
    check_own(1);
    twins.ddp->zero_grad();
    nn::Join join(*twins.ddp, {.divide_by_initial_world_size = false});
    REQUIRE(join.next(rank == 1));
    if (rank == 1) {
      loss(*twins.ddp, rank + 1).backward();
      check_own(1);
    } else {
      REQUIRE(join.follow());
    }
    CHECK(!join.next(false));
  });
  const std::string message = failure([](const Group& group, int rank) {
    Mlp net;
    DDP ddp(net, group);
    ddp.register_comm_hook(
        nn::post_localSGD_hook({group, group.split(rank), {.start_localSGD_iter = 0}}));
    ddp.backward(loss(ddp, 1), 2);
  });
  CAPTURE(message);
  CHECK(message.find("step 1 over samples: the hook averages over some of the ranks") !=
        std::string::npos);
}
