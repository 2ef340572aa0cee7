// SPDX-License-Identifier: Apache-2.0
// Training in low precision: the scaler's rules, masters of parameters in f16 and bf16, and DDP
// over ranks that are threads.
#include <peal/autograd/autocast.h>
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/threads.h>
#include <peal/nn/amp/grad_scaler.h>
#include <peal/nn/models/mlp.h>
#include <peal/nn/optim/adam.h>
#include <peal/nn/optim/clip_grad.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/ddp.h>

#include <doctest/doctest.h>

#include <cmath>

using namespace peal;

namespace {

const DType both[] = {DType::f16, DType::bf16};

std::vector<float> floats(const Tensor& x) { return cast(x, DType::f32).to_vector<float>(); }

void give(const Tensor& parameter, double gradient) {
  parameter.zero_grad();
  parameter.grad_slot().accumulate(full(parameter.shape(), gradient, parameter.dtype()));
}

TEST_CASE("the scale grows after an interval of good steps and shrinks at once") {
  const Tensor p = ones({3}).set_requires_grad();
  nn::SGD sgd({p}, {.lr = 1});
  nn::GradScaler scaler({.growth_interval = 3});
  const double expected[] = {65536, 65536, 32768, 32768, 32768, 65536, 32768, 16384, 16384};
  float value = 1;
  for (int step = 1; step <= 9; ++step) {
    CAPTURE(step);
    const bool bad = step == 3 || step == 7 || step == 8;
    // Powers of two, so that scaling loses nothing; a NaN counts like an infinity.
    give(p, bad ? (step == 7 ? NAN : INFINITY) : 0.125 * scaler.get_scale());
    CHECK(scaler.step(sgd) == !bad);
    if (!bad) value -= 0.125f;
    CHECK(floats(p) == std::vector<float>(3, value));
    scaler.update();
    CHECK(scaler.get_scale() == expected[step - 1]);
  }
  nn::GradScaler other;
  other.load_state_dict(scaler.state_dict());
  CHECK(other.get_scale() == 16384);
}

TEST_CASE("a loaded scale and tracker count on, and nonsense is refused") {
  const Tensor p = ones({3}).set_requires_grad();
  nn::SGD sgd({p}, {.lr = 1});
  const auto state = [](double scale, std::int64_t steps) {
    return NamedTensors{{"scale", Tensor::scalar(scale)},
                        {"growth_tracker", Tensor::scalar(steps)}};
  };
  for (const std::int64_t steps : {2, 5}) {  // as saved, and from a run of a longer interval
    nn::GradScaler scaler({.growth_interval = 3});
    scaler.load_state_dict(state(8, steps));
    give(p, 8);
    CHECK(scaler.step(sgd));
    scaler.update();
    CHECK(scaler.get_scale() == 16);
    CHECK(scaler.state_dict()[1].second.item<std::int64_t>() == 0);
  }
  // The usual ones: doubled after 2000 good steps, halved by a bad one.
  nn::GradScaler usual;
  usual.load_state_dict(state(65536, 1998));
  for (const double scale : {65536, 131072, 65536}) {
    give(p, scale == 65536 && usual.get_scale() > scale ? INFINITY : 1);
    usual.step(sgd);
    usual.update();
    CHECK(usual.get_scale() == scale);
  }
  nn::GradScaler scaler;
  for (const double scale : {0.0, -1.0, static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
    CHECK_THROWS_WITH(scaler.load_state_dict(state(scale, 0)),
                      doctest::Contains("expected a finite scale above 0"));
  }
  CHECK_THROWS(scaler.load_state_dict(state(1, -1)));
  CHECK(scaler.get_scale() == 65536);
}

TEST_CASE("finite gradients whose sum is past f32 are no reason to leave a step out") {
  const Tensor p = Tensor::zeros({128}).set_requires_grad();
  nn::SGD sgd({p}, {.lr = 1});
  nn::GradScaler scaler({.init_scale = 1});
  give(p, 3e38);
  CHECK(scaler.step(sgd));
  CHECK(floats(p)[127] == -3e38f);
}

TEST_CASE("scale, unscale_ and clipping") {
  const Tensor p = full({4}, 2.).set_requires_grad();
  nn::SGD sgd({p}, {.lr = 1});
  nn::GradScaler scaler;
  scaler.scale(sum(p * p)).backward();
  CHECK(floats(p.grad()) == std::vector<float>(4, 4 * 65536.0f));
  scaler.unscale_(sgd);
  CHECK(nn::clip_grad_norm_({p}, 4.0).item<double>() == 8);
  scaler.step(sgd);
  CHECK(floats(p)[0] == doctest::Approx(0));
  scaler.update();
  // A loss in f16 would not hold its scaled self.
  CHECK(floats(scaler.scale(full({}, 4, DType::f16)))[0] == 262144);
  const nn::GradScaler off({.enabled = false});
  CHECK(floats(off.scale(p)) == floats(p));
}

TEST_CASE("the scaler says what is wrong") {
  const Tensor p = ones({3}).set_requires_grad(), low = ones({3}, DType::f16).set_requires_grad();
  nn::SGD sgd({p}, {.lr = 1}), low_sgd({low}, {.lr = 1});
  nn::GradScaler scaler;
  CHECK_THROWS_WITH(scaler.update(), "GradScaler: update without a step or unscale_ before it");
  give(p, 1);
  scaler.unscale_(sgd);
  CHECK_THROWS_WITH(scaler.unscale_(sgd),
                    "GradScaler: unscale_ a second time for one optimizer since the last update");
  scaler.step(sgd);
  CHECK_THROWS_WITH(scaler.step(sgd),
                    "GradScaler: step a second time for one optimizer since the last update");
  CHECK_THROWS_WITH(scaler.unscale_(sgd),
                    "GradScaler: unscale_ after step for one optimizer since the last update");
  give(low, 1);
  CHECK_THROWS_WITH(scaler.step(low_sgd),
                    "GradScaler: unscale_ of an f16 gradient of shape [3]; keep parameters in f32 "
                    "and compute in f16 with Autocast");
  CHECK_THROWS(nn::GradScaler({.init_scale = 0}));
  CHECK_THROWS(nn::GradScaler({.growth_factor = 1}));
  CHECK_THROWS(nn::GradScaler({.backoff_factor = 1}));
}

TEST_CASE("what one rank finds, all leave out") {
  comm::run_ranks(3, [](const comm::ProcessGroup& group) {
    const Tensor p = ones({2}).set_requires_grad();
    nn::SGD sgd({p}, {.lr = 1});
    nn::GradScaler scaler({}, group);
    give(p, group.rank() == 1 ? INFINITY : 1);
    CHECK(!scaler.step(sgd));
    scaler.update();
    CHECK(scaler.get_scale() == 32768);
    CHECK(floats(p) == std::vector<float>{1, 1});
    give(p, 32768);
    CHECK(scaler.step(sgd));
    CHECK(floats(p) == std::vector<float>{0, 0});
  });
}

// 256 steps of 2^-9 each: in bf16, and in f16 above 2, one of them alone would be rounded away.
TEST_CASE("small steps add up in the master") {
  for (const DType dtype : both) {
    CAPTURE(concat(dtype));
    const Tensor p = full({5}, 4, dtype).set_requires_grad();
    nn::SGD sgd({p}, {.lr = 0x1p-9});
    for (int i = 0; i < 256; ++i) {
      give(p, 1);
      sgd.step();
    }
    CHECK(concat(p.dtype()) == concat(dtype));
    CHECK(floats(p) == std::vector<float>(5, 3.5f));
    // Another value written into the parameter counts from then on, for that element.
    p.detach().rows(0, 2).copy_(full({2}, 8, dtype));
    give(p, 512);
    sgd.step();
    CHECK(floats(p) == std::vector<float>{7, 7, 2.5f, 2.5f, 2.5f});
  }
}

// Two replicas trained apart, whose parameters round alike, and are then made equal.
TEST_CASE("a master starts again from a parameter that others wrote") {
  const Tensor p = full({2}, 4, DType::bf16).set_requires_grad();
  const Tensor q = full({2}, 4, DType::bf16).set_requires_grad();
  nn::SGD first({p}, {.lr = 0x1p-9}), second({q}, {.lr = 0x1p-9});
  const auto train = [](nn::SGD& sgd, int steps) {
    for (int i = 0; i < steps; ++i) {
      give(sgd.parameters()[0], 1);
      sgd.step();
    }
  };
  train(first, 1);
  train(second, 2);
  CHECK(floats(p) == floats(q));
  const Tensor master = second.state_dict().back().second;
  CHECK(floats(master)[0] == 4 - 0x1p-8f);
  for (const Tensor& each : {p, q}) each.copy_(full({2}, 4, DType::bf16));
  train(first, 1);
  train(second, 1);
  CHECK(floats(first.state_dict().back().second) == floats(second.state_dict().back().second));
  CHECK(floats(master)[0] == 4 - 0x1p-9f);  // the one tensor all along
}

// As a model whose parameters are views of one flat tensor.
TEST_CASE("parameters that share a storage keep their masters") {
  const Tensor flat = full({2}, 4, DType::bf16);
  const Tensor a = flat.rows(0, 1).set_requires_grad(), b = flat.rows(1, 2).set_requires_grad();
  nn::SGD sgd({a, b}, {.lr = 0x1p-9});
  for (int i = 0; i < 256; ++i) {
    give(a, 1);
    give(b, 1);
    sgd.step();
  }
  CHECK(floats(flat) == std::vector<float>{3.5f, 3.5f});
}

TEST_CASE("state of low precision is f32, and goes on bit for bit") {
  for (const DType dtype : both) {
    const auto step = [](nn::Optimizer& optimizer, int t) {
      give(optimizer.parameters()[0], 1.0 / (1 + t));
      optimizer.step();
    };
    const Tensor p = full({3}, 1, dtype).set_requires_grad();
    nn::AdamW adam({p}, {.lr = 1e-3});
    step(adam, 0);
    step(adam, 1);
    const Tensor copy = p.detach().clone().set_requires_grad();
    nn::AdamW resumed({copy}, {.lr = 1e-3});
    const NamedTensors state = adam.state_dict();
    for (const auto& [name, tensor] : state) {
      if (name.starts_with("0.") && name != "0.step") CHECK(concat(tensor.dtype()) == "f32");
    }
    CHECK(state.back().first == "0.master");
    resumed.load_state_dict(state);
    for (int t = 2; t < 6; ++t) {
      step(adam, t);
      step(resumed, t);
    }
    CHECK(floats(copy) == floats(p));
    CHECK(floats(resumed.state_dict().back().second) == floats(adam.state_dict().back().second));
    nn::AdamW wrong({ones({3}).set_requires_grad()}, {.lr = 1e-3});
    CHECK_THROWS_AS(wrong.load_state_dict(state), Error);
  }
}

TEST_CASE("the largest gradient is NaN where any is") {
  const Tensor a = ones({2}).set_requires_grad(), b = ones({2}).set_requires_grad();
  give(a, NAN);
  give(b, 1);
  CHECK(std::isnan(nn::clip_grad_norm_({a, b}, 1.0, INFINITY).item<double>()));
  give(b, 1);
  CHECK(std::isnan(nn::clip_grad_norm_({b, a}, 1.0, INFINITY).item<double>()));
  give(a, -8);
  give(b, 1);
  CHECK(nn::clip_grad_norm_({a, b}, 100, INFINITY).item<double>() == 8);
}

TEST_CASE("the norm of f16 gradients is of f32") {
  const Tensor p = Tensor::zeros({4}, DType::f16).set_requires_grad();
  give(p, 1024);  // whose square f16 does not hold
  CHECK(nn::clip_grad_norm_({p}, 1.0).item<double>() == 2048);
  CHECK(floats(p.grad())[0] == doctest::Approx(0.5).epsilon(1e-3));
}

// Small whole numbers: every sum is exact in any order, so ranks together equal one process.
TEST_CASE("DDP averages gradients in low precision") {
  for (const DType dtype : both) {
    comm::run_ranks(2, [dtype](const comm::ProcessGroup& group) {
      const auto model = [dtype] {
        manual_seed(1);
        nn::Sequential net = nn::mlp({4, 8, 2});
        for (const auto& [name, p] : net.named_parameters()) {
          p.copy_(arange(p.numel(), DType::f32).detach(p.shape()));
          mul_(p, 0.25);
        }
        net.to(dtype);
        return net;
      };
      const auto input = [dtype](std::int64_t rank) {
        return full({2, 4}, static_cast<double>(rank) + 1, dtype);
      };
      nn::Sequential alone = model(), shared = model();
      nn::DistributedDataParallel ddp(shared, group);
      for (const nn::Bucket& bucket : ddp.reducer().buckets()) CHECK(bucket.dtype == dtype);
      sum(ddp(input(group.rank()))).backward();
      const auto own = alone.parameters(), theirs = ddp.parameters();
      mul(sum(alone(cat({input(0), input(1)}))), 0.5).backward();
      nn::AdamW optimizer(theirs, {.lr = 1e-2});
      for (std::size_t i = 0; i < own.size(); ++i) {
        CAPTURE(i);
        CHECK(concat(theirs[i].grad().dtype()) == concat(dtype));
        CHECK(floats(theirs[i].grad()) == floats(own[i].grad()));
      }
      optimizer.step();
      std::string bits;
      for (const Tensor& p : theirs) {
        bits.append(static_cast<const char*>(p.raw()), static_cast<std::size_t>(p.numel()) * 2);
      }
      CHECK(group.all_gather_object(bits)[0] == bits);
    });
  }
}

// Parameters in f32, compute in low precision: the loss falls as it does in f32.
TEST_CASE("autocast trains, with and without ranks") {
  for (const DType dtype : both) {
    CAPTURE(concat(dtype));
    comm::run_ranks(2, [dtype](const comm::ProcessGroup& group) {
      manual_seed(1);
      nn::Sequential net = nn::mlp({8, 32, 4});
      manual_seed(2);
      const Tensor x = randn({32, 8}), target = argmax(linear(x, randn({4, 8})), 1);
      nn::DistributedDataParallel ddp(net, group);
      nn::AdamW optimizer(ddp.parameters(), {.lr = 1e-2});
      nn::GradScaler scaler({.enabled = dtype == DType::f16}, group);
      float first = 0, last = 0;
      for (int step = 0; step < 60; ++step) {
        optimizer.zero_grad();
        Tensor loss;
        {
          const Autocast guard(dtype);
          loss = cross_entropy(ddp(x), target);
        }
        scaler.scale(loss).backward();
        scaler.step(optimizer);
        scaler.update();
        last = loss.item<float>();
        if (step == 0) first = last;
      }
      CHECK(last < 0.25f * first);
      for (const Tensor& p : ddp.parameters()) CHECK(concat(p.grad().dtype()) == "f32");
    });
  }
}

// Rank 0 has one sample with gradient 4, rank 1 has 99 with gradient 1, in units of 1/64.
TEST_CASE("a scaled loss is averaged over samples, and what overflows leaves no count behind") {
  comm::run_ranks(2, [](const comm::ProcessGroup& group) {
    const int rank = group.rank();
    nn::Linear net(1, 1, false);
    net.weight.copy_(Tensor::zeros({1, 1}));
    nn::DistributedDataParallel ddp(net, group);
    nn::SGD optimizer(ddp.parameters(), {.lr = 1});
    nn::GradScaler scaler({.init_scale = 65536}, group);
    const auto step = [&](double x) {
      optimizer.zero_grad();
      Tensor loss;
      {
        const Autocast guard(DType::f16);
        loss = mean(ddp(full({4, 1}, x)));
      }
      ddp.backward(scaler.scale(loss), rank == 0 ? 1 : 99);
      const bool stepped = scaler.step(optimizer);
      scaler.update();
      return stepped;
    };
    const double mine = (rank == 0 ? 4.0 : 1.0) / 64;
    float before = 0;
    for (int k = 0; k < 3; ++k) {
      CAPTURE(k);
      if (k > 0) {
        CHECK_FALSE(step(rank == 1 ? 32768 : mine));  // 99 of these f16 does not hold
        CHECK(floats(net.weight)[0] == before);
        CHECK(scaler.get_scale() == 65536 >> k);
      }
      CHECK(step(mine));
      const float now = floats(net.weight)[0];
      CHECK(64 * (before - now) == doctest::Approx(1.03).epsilon(2e-3));
      before = now;
    }
  });
}

}  // namespace
