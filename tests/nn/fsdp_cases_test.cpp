// SPDX-License-Identifier: Apache-2.0
// Cases from which users of sharded training suffered: the divisor of unequal shares, sizes that do
// not divide among ranks, parameters without elements, a parameter that the last micro-batch alone
// uses, sums in few bits, and messages that are late.
#include <peal/nn/amp/grad_scaler.h>
#include <peal/nn/optim/clip_grad.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/sharded/sharded_checkpoint.h>
#include <peal/nn/parallel/sharded/sharded_ddp.h>

#include <unistd.h>
#include <filesystem>
#include <limits>

#include "fsdp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

Tensor ones_of(const Shape& shape) { return full(shape, 1.0, DType::f64); }

struct Weight : nn::Module {
  Tensor w;
  explicit Weight(const Shape& shape, double value = 1) {
    w = add_parameter("w", full(shape, value, DType::f64));
  }
  Tensor forward(const Tensor& x) override { return x * w; }
};

}  // namespace

TEST_CASE("gradients of unequal shares have one divisor, that of all tokens") {
  // Sums 4 over one token and 3 over three are 1.75 a token; a mean of means is 2.5.
  const auto tokens_of = [](int part) {
    const std::vector<double> values =
        part == 0 ? std::vector<double>{4} : std::vector<double>{1, 1, 1};
    return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
  };
  two([&](const Group& group, int rank) {
    Weight model({1});
    FSDP fsdp(model, group);
    const auto gradient = [&] {
      const Tensor sum = Tensor::zeros({1}, DType::f64);
      const Tensor piece = fsdp.local_parameters()[0].second;
      if (piece.numel() > 0) sum.copy_(piece.grad());
      group.all_reduce(sum.view()).wait();
      return sum.item<double>();
    };
    // FSDP averages over the ranks, so a rank's sum is divided by the mean number of tokens.
    sum(fsdp(tokens_of(rank))).backward(Tensor::scalar(2.0 / 4, Device{}));
    CHECK(gradient() == 1.75);
    fsdp.zero_grad();
    // As two steps of accumulation, of which each rank has both.
    {
      const auto alone = fsdp.no_sync();
      (sum(fsdp(tokens_of(rank))) * 0.25).backward();
    }
    (sum(fsdp(tokens_of(1 - rank))) * 0.25).backward();
    CHECK(gradient() == 1.75);
  });
}

TEST_CASE("each rank gets its part of the average of all ranks' gradients") {
  two([](const Group& group, int rank) {
    Weight model({4});
    FSDP fsdp(model, group);
    const std::vector<double> mine =
        rank == 0 ? std::vector<double>{1, 2, 3, 4} : std::vector<double>{5, 6, 7, 8};
    sum(fsdp(Tensor::from(mine, {4}))).backward();
    CHECK(fsdp.local_parameters()[0].second.grad().to_vector<double>() ==
          (rank == 0 ? std::vector<double>{3, 4} : std::vector<double>{5, 6}));
  });
}

TEST_CASE("rows that do not divide among ranks: steps, norm, and a checkpoint at another world") {
  struct Rows : nn::Module {  // a few rows, and a vector that is trained in any case
    Tensor table, scale;
    explicit Rows(std::int64_t rows) {
      table = add_parameter("table", Tensor::zeros({rows, 3}, DType::f64));
      scale = add_parameter("scale", full({2}, 1.0, DType::f64));
      for (std::int64_t i = 0; i < table.numel(); ++i) {
        table.data<double>()[i] = static_cast<double>(i % 7) - 3;
      }
    }
    Tensor forward(const Tensor& x) override { return sum(square(table)) + sum(scale * x); }
  };
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / concat("peal_fsdp_cases_", getpid());
  for (const std::int64_t rows : {0, 1, 3, 5, 6, 50257}) {
    CAPTURE(rows);
    Rows whole(rows);
    nn::AdamW expected(whole.named_parameters(), {.lr = 0.1});
    std::vector<double> norms;
    std::vector<NamedTensors> states;
    for (int step = 0; step < 2; ++step) {
      expected.zero_grad();
      whole(ones_of({2})).backward();
      norms.push_back(nn::clip_grad_norm_(whole.parameters(), 1.0).item<double>());
      expected.step();
      states.emplace_back();
      for (const auto& [name, tensor] : whole.state_dict()) {
        states.back().emplace_back(name, tensor.clone());
      }
    }
    int from = 0;
    for (const int world : {2, 3, 4, 8}) {
      CAPTURE(world);
      ranks(world, [&](const Group& group, int) {
        Rows model(rows);
        FSDP fsdp(model, group);
        nn::AdamW optimizer(fsdp.local_parameters(), {.lr = 0.1});
        const std::vector<nn::Part> parts{{"model", fsdp}, {"optimizer", fsdp.saved(optimizer)}};
        const auto step = [&](std::size_t number) {
          fsdp.zero_grad();
          fsdp(ones_of({2})).backward();
          const double norm = fsdp.clip_grad_norm_(1.0);
          CHECK(std::abs(norm - norms[number]) <= 1e-12 * norms[number]);
          optimizer.step();
          CHECK(difference(fsdp.state_dict(), states[number]) < 1e-12);
        };
        if (from > 0) nn::load_sharded(folder, parts, group);
        if (from == 0) step(0);
        nn::save_sharded(folder, parts, group);  // for the next world
        step(1);
      });
      from = world;
    }
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("beside a parameter without elements others train, whatever is shared out") {
  struct Hollow : nn::Module {
    Tensor none = add_parameter("none", Tensor::zeros({0, 8}));
    nn::Linear some = add("some", nn::Linear(8, 2));
    Tensor forward(const Tensor& x) override { return sum(square(some(x))) + sum(none); }
  };
  two([](const Group& group, int) {
    const auto made = [] {
      manual_seed(4);
      Hollow model;
      model.to(DType::f64);
      return model;
    };
    const Tensor x = ones_of({3, 8});
    Hollow whole = made();
    nn::AdamW expected(whole.named_parameters());
    whole(x).backward();
    expected.step();

    Hollow sharded = made(), second = made();
    FSDP fsdp(sharded, group, {.wrap = nn::wrap_by_type({"Linear"})});
    nn::AdamW optimizer(fsdp.local_parameters());
    fsdp(x).backward();
    optimizer.step();
    CHECK(difference(fsdp.state_dict(), whole.state_dict()) < 1e-12);

    nn::ZeroRedundancyOptimizer<nn::AdamW> zero(group, nn::Parameters(second.named_parameters()));
    nn::ShardedDDP ddp(second, zero);
    ddp(x).backward();
    zero.step();
    CHECK(difference(second.state_dict(), whole.state_dict()) < 1e-12);
  });
}

TEST_CASE(
    "a parameter that the last of four micro-batches alone uses is averaged with the others") {
  struct Late : nn::Module {
    nn::Linear first = add("first", nn::Linear(3, 3));
    nn::Linear late = add("late", nn::Linear(3, 3));
    bool last = false;
    Tensor forward(const Tensor& x) override { return last ? late(first(x)) : first(x); }
  };
  for (const bool reduced_each : {true, false}) {
    CAPTURE(reduced_each);
    two([reduced_each](const Group& group, int rank) {
      const auto made = [] {
        manual_seed(4);
        Late model;
        model.to(DType::f64);
        return model;
      };
      Late model = made(), whole = made();
      FSDP fsdp(model, group, {.wrap = nn::wrap_by_type({"Linear"})});
      nn::SGD optimizer(fsdp.local_parameters(), {.lr = 0.1}),
          expected(whole.named_parameters(), {.lr = 0.1});
      for (int micro = 0; micro < 4; ++micro) {
        model.last = whole.last = micro == 3;
        const Tensor x = randn({2, 3}, DType::f64);
        fsdp.as<Late>()->last = model.last;
        const auto backward = [&] { sum(square(fsdp(x.rows(rank, rank + 1)))).backward(); };
        if (reduced_each || micro == 3) {
          backward();
        } else {
          const auto alone = fsdp.no_sync();
          backward();
        }
        (sum(square(whole(x))) / 2.0).backward();
      }
      optimizer.step();
      expected.step();
      CHECK(difference(fsdp.state_dict(), whole.state_dict()) < 1e-12);
    });
  }
}

TEST_CASE("512 gradients of one in bf16 are 512 where they add up in f32") {
  two([](const Group& group, int) {
    struct One : nn::Module {
      Tensor w = add_parameter("w", full({2}, 1.0));
      Tensor forward(const Tensor& x) override { return x * w; }
    };
    One model;
    FSDP fsdp(model, group,
              {.mixed_precision = {.param_dtype = DType::bf16, .reduce_dtype = DType::f32}});
    const Tensor x = full({2}, 1.0);
    for (int micro = 0; micro < 512; ++micro) {
      const auto backward = [&] { sum(fsdp(x)).backward(); };
      if (micro < 511) {
        const auto alone = fsdp.no_sync();
        backward();
      } else {
        backward();
      }
    }
    CHECK(fsdp.local_parameters()[0].second.grad().to_vector<float>() == std::vector<float>{512});
  });
}

TEST_CASE("an infinite gradient in one rank's part halves the scale of all") {
  for (const std::int64_t size : {4, 1}) {  // of one element the last rank has nothing
    two([size](const Group& group, int rank) {
      Weight model({size});
      FSDP fsdp(model, group);
      nn::SGD optimizer(fsdp.local_parameters(), {.lr = 0.1});
      nn::GradScaler scaler({}, group);
      CHECK(scaler.get_scale() == 65536);
      scaler.scale(sum(fsdp(ones_of({size})))).backward();
      const Tensor piece = fsdp.local_parameters()[0].second;
      CHECK(piece.numel() == (size == 4 ? 2 : 1 - rank));
      if (rank == (size == 4 ? 1 : 0)) {
        fill_(piece.grad(), std::numeric_limits<double>::infinity());
      }
      CHECK(!scaler.step(optimizer));
      scaler.update();
      CHECK(scaler.get_scale() == 32768);
      const auto weights = [&] { return fsdp.state_dict()[0].second.to_vector<double>(); };
      CHECK(weights() == std::vector<double>(static_cast<std::size_t>(size), 1.0));
      // And all take the next.
      fsdp.zero_grad();
      scaler.scale(sum(fsdp(ones_of({size})))).backward();
      CHECK(scaler.step(optimizer));
      CHECK(weights() == std::vector<double>(static_cast<std::size_t>(size), 1 - 0.1));
    });
  }
}

TEST_CASE("what a scaler cannot unscale on one rank is an Error on those without elements, too") {
  for (const bool half : {false, true}) {
    two([half](const Group& group, int rank) {
      Weight model({1});
      if (half) model.to(DType::f16);
      FSDP fsdp(model, group);
      nn::SGD optimizer(fsdp.local_parameters(), {.lr = 0.1});
      nn::GradScaler scaler({.init_scale = 4}, group);
      const auto backward = [&] {
        scaler.scale(sum(fsdp(cast(ones_of({1}), model.w.dtype())))).backward();
      };
      if (half) {
        backward();
      } else {
        const FSDP::NoSync scope = fsdp.no_sync();
        backward();
      }
      const std::string told = error_of([&] { scaler.step(optimizer); });
      check_has(told, rank == 1 ? "another rank cannot unscale its gradients"
                      : half    ? "unscale_ of an f16 gradient"
                                : "not averaged yet");
      if (half) return;
      backward();  // both are averaged, and the ranks go on together
      CHECK(scaler.step(optimizer));
      CHECK(fsdp.state_dict()[0].second.to_vector<double>()[0] == doctest::Approx(1 - 0.2));
    });
  }
}

TEST_CASE("late messages change no bit, whatever is prefetched, nor what units there are") {
  const auto trained = [](const comm::Wire& wire, const nn::ScheduleOptions& schedule,
                          const nn::WrapPolicy& wrap, bool deterministic) {
    std::vector<double> all;
    const comm::ProcessGroup::Options options{.deadline = std::chrono::minutes(1),
                                              .shared_memory = !deterministic,
                                              .deterministic = deterministic};
    comm::run_ranks(3, options, wire, [&](const Group& group) {
      SmallConv model = fresh(make_conv);
      FSDP fsdp(model, group, {.wrap = wrap, .schedule = schedule});
      nn::AdamW optimizer(fsdp.local_parameters(), {.lr = 0.01});
      for (int step = 0; step < 2; ++step) {
        fsdp.zero_grad();
        loss_of(fsdp, rows_of(batch_of(model, 3, step), group.rank(), 3)).backward();
        optimizer.step();
      }
      const NamedTensors state = fsdp.state_dict();
      if (group.rank() != 0) return;
      for (const auto& [name, tensor] : state) {
        for (const double value : tensor.to_vector<double>()) all.push_back(value);
      }
    });
    return all;
  };
  const std::vector<double> prompt = trained({}, {}, wrap_layers(), false);
  for (const std::uint64_t seed : {1, 2}) {
    const comm::Wire late{.jitter = 1e-3, .seed = seed};
    for (const bool prefetch : {true, false}) {
      CHECK(trained(late, {true, prefetch, prefetch}, wrap_layers(), false) == prompt);
    }
  }
  // In deterministic mode neither do other units, whose messages have other sizes.
  const std::vector<double> steady = trained({}, {}, wrap_layers(), true);
  const comm::Wire late{.jitter = 1e-3, .seed = 3};
  for (const nn::WrapPolicy& wrap : {nn::WrapPolicy(), nn::wrap_by_type({"Linear"})}) {
    CHECK(trained(late, {}, wrap, true) == steady);
  }
}
