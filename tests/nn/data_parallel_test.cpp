// SPDX-License-Identifier: Apache-2.0
// One process on several threads: how a batch is cut, that gradients are those of the whole, what
// becomes of buffers, modes and random numbers, and how it differs from DDP.
#include <peal/nn/empty_weights.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/data_parallel.h>
#include <peal/tests/errors.h>

#include "ddp_ranks.h"

#include <array>
#include <cstdint>
#include <tuple>
#include <vector>

using namespace peal;
using namespace peal::testing;

namespace {

template <class M>
nn::DataParallel over(int devices, const M& model) {
  return nn::DataParallel(model, std::vector<Device>(static_cast<std::size_t>(devices)),
                          [] { return M(); });
}

struct Slope : nn::Module {  // y = w x
  Tensor w = add_parameter("w", ones({1}));
  Tensor forward(const Tensor& x) override { return x * w; }
};

struct Count : nn::Module {  // how many samples came, as a scalar
  Tensor w = add_parameter("w", ones({1}));
  Tensor forward(const Tensor& x) override { return sum(x * 0.0 + w); }
};

struct Deep : nn::Sequential {  // of 70 parameters
  Deep() {
    for (int i = 0; i < 35; ++i) push_back(nn::Linear(3, 3));
  }
};

Tensor one_to(std::int64_t n) { return cast(arange(n), DType::f32) + 1.0; }

std::vector<std::vector<float>> gradients(const nn::Module& module) {
  std::vector<std::vector<float>> all;
  for (const Tensor& p : module.parameters()) all.push_back(p.grad().to_vector<float>());
  return all;
}

}  // namespace

TEST_CASE("a batch is cut into chunks of one size, and scalars become a vector") {
  Count net;
  nn::DataParallel parallel = over(4, net);
  CHECK(parallel(ones({10})).to_vector<float>() == std::vector<float>{3, 3, 3, 1});
  CHECK(parallel(ones({5})).to_vector<float>() == std::vector<float>{2, 2, 1});
  CHECK(parallel(ones({4, 1})).to_vector<float>() == std::vector<float>{1, 1, 1, 1});
  CHECK(parallel(ones({1})).to_vector<float>() == std::vector<float>{1});
  const Tensor y = parallel(ones({10}));
  sum(y * Tensor::from<float>({1, 10, 100, 1000}, {4})).backward();
  CHECK(net.w.grad().item<float>() == 3 + 30 + 300 + 1000);
}

TEST_CASE("gradients are summed, where DDP averages over ranks of unequal batches") {
  Slope net;
  nn::DataParallel parallel = over(4, net);
  mean(parallel(one_to(5))).backward();
  CHECK(net.w.grad().item<float>() == 3);
  constexpr std::array<std::int64_t, 4> bounds{0, 2, 4, 5};  // the same chunks
  ranks(3, [&](const Group& group, int rank) {
    Slope own;
    DDP ddp(own, group);
    const auto r = static_cast<std::size_t>(rank);
    mean(ddp(one_to(5).rows(bounds[r], bounds[r + 1]).clone())).backward();
    CHECK(own.w.grad().item<float>() == doctest::Approx(10.0 / 3));
  });
}

TEST_CASE("outputs and gradients are those of the whole batch, of many parameters and of x") {
  manual_seed(2);
  for (const int devices : {1, 2, 3, 4}) {
    for (const std::int64_t samples : {1, 2, 7, 12}) {
      Deep net, alone;
      std::int64_t next = 0;
      for (nn::Module* const module :
           {static_cast<nn::Module*>(&net), static_cast<nn::Module*>(&alone)}) {
        next = 0;
        for (const Tensor& p : module->parameters()) {
          // Signed permutations and small biases: sums stay whole numbers.
          for (std::int64_t i = 0; i < p.numel(); ++i) {
            const bool one = p.dim() == 1 ? next % 5 == 0 : i / 3 == (i % 3 + next / 12) % 3;
            p.data<float>()[i] = one ? (next % 2 == 0 ? 1.0f : -1.0f) : 0.0f;
            ++next;
          }
        }
      }
      nn::DataParallel parallel = over(devices, net);
      const Tensor values = cast(cast(randn({samples, 3}) * 3.0, DType::i64), DType::f32);
      const Tensor x = values.clone().set_requires_grad(),
                   same = values.clone().set_requires_grad();
      const Tensor y = parallel(x), expected = alone(same);
      CHECK(y.shape() == expected.shape());
      CHECK(y.to_vector<float>() == expected.to_vector<float>());
      sum(y * y).backward();
      sum(expected * expected).backward();
      CHECK(gradients(net) == gradients(alone));
      CHECK(x.grad().to_vector<float>() == same.grad().to_vector<float>());
    }
  }
}

TEST_CASE("it trains, saves and evaluates as the module does") {
  manual_seed(3);
  Mlp net, alone;
  alone.load_state_dict(net.state_dict());
  nn::DataParallel parallel = over(3, net);
  CHECK(parallel.state_dict()[0].first == net.state_dict()[0].first);
  nn::SGD one(parallel.parameters(), {.lr = 0.05, .momentum = 0.9});
  nn::SGD other(alone.parameters(), {.lr = 0.05, .momentum = 0.9});
  for (int step = 0; step < 5; ++step) {
    const Tensor x = randn({8, 3});
    one.zero_grad();
    other.zero_grad();
    mean(parallel(x) * parallel(x)).backward();  // two forwards, one backward
    mean(alone(x) * alone(x)).backward();
    one.step();
    other.step();
  }
  const Tensor x = randn({5, 3});
  CHECK(max(abs(net(x) - alone(x))).item<float>() < 1e-5f);
  const NoGrad guard;
  CHECK(!parallel(x).requires_grad());
}

TEST_CASE("a buffer that backward reads is copied when it was written, and not at each forward") {
  struct Scaled : nn::Module {
    Tensor by = add_buffer("by", full({3}, 2.)), seen = add_buffer("seen", Tensor::zeros({1}));
    nn::Linear layer = add("layer", nn::Linear(3, 1));
    Tensor forward(const Tensor& x) override {
      add_(seen, ones({1}));
      return layer(x * 2.0) + sum(layer(x) * by);
    }
  };
  Scaled net, alone;
  make_whole(net);
  alone.load_state_dict(net.state_dict());
  nn::DataParallel parallel = over(2, net);
  for (const double by : {2, 5}) {
    fill_(net.by, by);
    fill_(alone.by, by);
    const Tensor x = full({4, 3}, 1.);
    const Tensor first = parallel(x), second = parallel(x * 0.5);  // two forwards, one backward
    (sum(first) + sum(second)).backward();
    for (const double part : {1.0, 0.5}) {
      for (int replica = 0; replica < 2; ++replica) sum(alone(full({2, 3}, part))).backward();
    }
    CHECK(gradients(net) == gradients(alone));
    net.zero_grad();
    alone.zero_grad();
  }
  CHECK(net.seen.item<float>() == 4);  // what the other replica counts is lost
}

TEST_CASE("the first replica's buffers are the module's, and modes follow it") {
  struct Net : nn::Module {
    nn::BatchNorm1d norm = add("norm", nn::BatchNorm1d(1, {.momentum = 1}));
    nn::BatchNorm1d fixed = add("fixed", nn::BatchNorm1d(1));
    Tensor forward(const Tensor& x) override { return fixed(norm(x)); }
  };
  Net net;
  net.fixed.eval();
  nn::DataParallel parallel = over(2, net);
  const Tensor x = Tensor::from<float>({1, 3, 10, 20, 30, 40}, {6, 1});
  parallel(x);
  CHECK(net.norm.running_mean.item<float>() == doctest::Approx((1 + 3 + 10) / 3.0));
  CHECK(net.norm.num_batches_tracked.item<std::int64_t>() == 1);
  CHECK(net.fixed.num_batches_tracked.item<std::int64_t>() == 0);
  parallel.eval();
  const Tensor y = parallel(x);
  CHECK(y.to_vector<float>() == net(x).to_vector<float>());
}

TEST_CASE("random numbers differ by replica, and come again with the seed") {
  struct Net : nn::Module {
    nn::Dropout drop = add("drop", nn::Dropout(0.5));
    Tensor forward(const Tensor& x) override { return drop(x); }
  };
  nn::DataParallel parallel = over(2, Net());
  const auto draw = [&] { return parallel(ones({2, 200})).to_vector<float>(); };
  manual_seed(5);
  const auto first = draw(), second = draw();
  manual_seed(5);
  CHECK(draw() == first);
  CHECK(second != first);
  CHECK(std::vector<float>(first.begin(), first.begin() + 200) !=
        std::vector<float>(first.begin() + 200, first.end()));
}

TEST_CASE("frozen parameters and parts that no output needs have no gradient") {
  struct Net : nn::Module {
    nn::Linear used = add("used", nn::Linear(2, 2));
    nn::Linear idle = add("idle", nn::Linear(2, 2));
    Tensor forward(const Tensor& x) override { return used(x); }
  };
  Net net;
  net.used.bias.set_requires_grad(false);
  nn::DataParallel parallel = over(3, net);
  sum(parallel(ones({6, 2}))).backward();
  CHECK(net.used.weight.grad().to_vector<float>() == std::vector<float>{6, 6, 6, 6});
  CHECK(!net.used.bias.grad().defined());
  CHECK(!net.idle.weight.grad().defined());
}

TEST_CASE("what it refuses, and a replica's error has its number") {
  struct Picky : nn::Module {
    Tensor forward(const Tensor& x) override {
      PEAL_CHECK(max(x).item<float>() < 3, "too large");
      return x;
    }
  };
  nn::DataParallel parallel = over(2, Picky());
  check_has(error_of([&] {
              parallel(Tensor::from<float>({1, 2, 3, 4}, {4}));
            }),
            "[data parallel] replica 1 of 2: too large");
  check_has(error_of([] { nn::DataParallel(Slope(), {}, [] { return Slope(); }); }),
            "expected a device at least, got none");
  check_has(error_of([] {
              nn::DataParallel(nn::Linear(2, 3), std::vector<Device>(2),
                               [] { return nn::Linear(2, 4); });
            }),
            "replica 1 is no module like the first: expected weight f32 [3, 2], got weight f32 [4, "
            "2]");
  Slope net;
  check_has(error_of([&] { nn::DataParallel(net, std::vector<Device>(2), [&] { return net; }); }),
            "replica 1 has the first module's own parameters");
}

namespace {

struct Several : nn::Module {
  nn::Linear a = add("a", nn::Linear(2, 2)), b = add("b", nn::Linear(3, 2));
  struct Result {
    Tensor rows, total, rounded, nothing;
    double scale = 0;
    auto fields() { return std::tie(rows, total, rounded, nothing); }
  };
  Result both(const Tensor& x, const std::vector<Tensor>& y, double scale) {
    const Tensor rows = a(x) * scale;
    return {rows, sum(b(y.at(0))), cast(rows.detach(), DType::i64), {}, scale};
  }
};

}  // namespace

TEST_CASE("a method of several inputs and outputs is cut and put together alike") {
  for (const int devices : {1, 3, 4}) {
    for (const bool only_rows : {false, true}) {
      Several net, alone;
      make_whole(net);
      make_whole(alone);
      int calls = 0;
      net.register_forward_pre_hook([&](nn::Module&, const Tensors& in) -> nn::Module::Replaced {
        CHECK(in.size() == 2);
        CHECK(in[0].size(0) == 7);
        ++calls;
        return std::nullopt;
      });
      nn::DataParallel parallel = over(devices, net);
      CHECK(parallel.replicas() == static_cast<std::size_t>(devices));
      std::vector<std::vector<float>> of_inputs[2];
      for (const bool mine : {true, false}) {
        const Tensor x = reshape(one_to(14), {7, 2}), y = reshape(one_to(21), {7, 3});
        x.set_requires_grad();
        y.set_requires_grad();
        const std::vector<Tensor> list{y};
        const auto result =
            mine ? parallel.call(&Several::both, x, list, 2.0) : alone.both(x, list, 2);
        CHECK(result.scale == 2);
        CHECK(!result.nothing.defined());
        const Tensor total = sum(result.total);
        if (mine) {
          const auto expected = alone.both(x, list, 2);
          CHECK(result.rows.to_vector<float>() == expected.rows.to_vector<float>());
          CHECK(result.rounded.to_vector<std::int64_t>() ==
                expected.rounded.to_vector<std::int64_t>());
          CHECK(!result.rounded.requires_grad());
          CHECK(total.item<float>() == expected.total.item<float>());
          CHECK(result.total.numel() == (devices == 4 ? 4 : devices));
        }
        const Tensor rows = sum(result.rows * result.rows);
        (only_rows ? rows : rows + total * 3.0).backward();
        of_inputs[mine ? 0 : 1].push_back(x.grad().to_vector<float>());
        if (!only_rows) of_inputs[mine ? 0 : 1].push_back(y.grad().to_vector<float>());
      }
      CHECK(calls == 1);
      CHECK(of_inputs[0] == of_inputs[1]);
      CHECK(net.b.weight.grad().defined() == !only_rows);
      const auto same = [](const nn::Module& one, const nn::Module& other) {
        CHECK(gradients(one) == gradients(other));
      };
      same(net.a, alone.a);
      if (!only_rows) same(net.b, alone.b);
    }
  }
}

TEST_CASE("inputs that cannot be cut alike, and methods of other classes, are refused") {
  Several net;
  nn::DataParallel parallel = over(2, net);
  check_has(error_of([&] {
              parallel.call(&Several::both, ones({4, 2}), std::vector<Tensor>{ones({5, 3})}, 1.0);
            }),
            "expected 4 rows in each, got one of [5, 3]");
  check_has(error_of([&] {
              parallel.call(&Several::both, ones({4, 2}), std::vector<Tensor>{ones({})}, 1.0);
            }),
            "expected [B, ...], got a scalar");
  struct Other : nn::Module {
    Tensor twice(const Tensor& x) { return x * 2.0; }
  };
  check_has(error_of([&] {
              parallel.call(&Other::twice, ones({4, 2}));
            }),
            "and the method of another class");
}

TEST_CASE("a module that was made empty gets its values") {
  const Slope slope = [] {
    const auto empty = nn::init_empty_weights();
    return Slope();
  }();
  REQUIRE(is_deferred(slope.w));
  nn::DataParallel parallel = over(2, slope);
  CHECK(parallel(Tensor::from<float>({3, 5}, {2})).to_vector<float>() == std::vector<float>{3, 5});
}
