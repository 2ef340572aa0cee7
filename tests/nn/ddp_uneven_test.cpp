// SPDX-License-Identifier: Apache-2.0
// Training with batches of different numbers and sizes is training of one process on the same
// global batches: each sample weighs the same, with accumulation, clipping, hooks and types.
#include <peal/autograd/core/trace.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/optim/clip_grad.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/compress_hooks.h>
#include <peal/nn/parallel/join.h>
#include <peal/nn/parallel/power_sgd.h>
#include <peal/nn/parallel/sync_batch_norm.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

// Samples [n, 3] of a micro-batch: as many as its numbers say, and other ones for each.
std::int64_t size_of_batch(int rank, int number) { return 1 + (rank * 3 + number * 5) % 4; }
Tensor batch_of(int rank, int number) {
  const std::int64_t n = size_of_batch(rank, number);
  std::vector<float> values;
  for (std::int64_t i = 0; i < 3 * n; ++i) {
    values.push_back(static_cast<float>((rank * 31 + number * 17 + i * 7) % 23) / 8 - 1.25F);
  }
  return Tensor::from(values, {n, 3});
}

Tensor mean_loss(nn::Module& model, const Tensor& x) {
  const Tensor y = model(x);
  return sum(y * y) / static_cast<double>(std::max<std::int64_t>(x.size(0), 1));
}

// Up to a part of the largest element of all.
void check_close(const std::vector<Tensor>& mine, const std::vector<Tensor>& theirs,
                 double tolerance) {
  REQUIRE(mine.size() == theirs.size());
  double off = 0, size = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const auto got = cast(mine[i].detach(), DType::f64).to_vector<double>();
    const auto want = cast(theirs[i].detach(), DType::f64).to_vector<double>();
    REQUIRE(got.size() == want.size());
    for (std::size_t k = 0; k < got.size(); ++k) {
      REQUIRE(std::isfinite(got[k]));
      off = std::max(off, std::abs(got[k] - want[k]));
      size = std::max(size, std::abs(want[k]));
    }
  }
  CHECK(off <= tolerance * std::max(size, 1e-3));
}

nn::Sequential make_net(bool norm) {
  manual_seed(3);
  if (norm) return nn::Sequential(nn::Linear(3, 4), nn::BatchNorm1d(4), nn::Linear(4, 2));
  return nn::Sequential(nn::Linear(3, 4), nn::Tanh(), nn::Linear(4, 2));
}

}  // namespace

TEST_CASE("ranks with 10, 11, 12 and 13 batches train as one process, clipped and accumulated") {
  for (const bool norm : {false, true}) {
    const int each = norm ? 1 : 2;  // micro-batches a step
    ranks(4, [&](const Group& group, int rank) {
      nn::Sequential net = make_net(norm), alone = make_net(norm);
      if (norm) nn::convert_sync_batchnorm(net, group);
      DDP ddp(net, group, {.buckets = apart});
      nn::SGD optimizer(ddp.parameters(), {.lr = 0.05, .momentum = 0.9});
      nn::SGD other(alone.parameters(), {.lr = 0.05, .momentum = 0.9});
      const auto batches = [](int r) { return 10 + r; };
      nn::Join join(ddp);
      int turn = 0;
      std::int64_t seen = 0, all = 0;
      for (; join.next(turn * each < batches(rank)); ++turn) {
        optimizer.zero_grad();
        const int end = std::min((turn + 1) * each, batches(rank));
        for (int k = turn * each; k < end; ++k) {
          const Tensor x = batch_of(rank, k);
          const auto backward = [&] {
            ddp.backward(mean_loss(ddp, x), static_cast<double>(x.size(0)));
          };
          if (k + 1 < end) {
            const auto guard = ddp.no_sync();
            backward();
          } else {
            backward();
          }
          seen += x.size(0);
        }
        if (!join.active()) REQUIRE(join.follow());
        nn::clip_grad_norm_(ddp.parameters(), 0.5);
        optimizer.step();

        Tensors parts;
        for (int r = 0; r < 4; ++r) {
          for (int k = turn * each; k < std::min((turn + 1) * each, batches(r)); ++k) {
            parts.push_back(batch_of(r, k));
            all += parts.back().size(0);
          }
        }
        other.zero_grad();
        mean_loss(alone, cat(parts)).backward();
        nn::clip_grad_norm_(alone.parameters(), 0.5);
        other.step();
      }
      CHECK(turn == (norm ? 13 : 7));
      const Tensor total = full({1}, static_cast<double>(seen));
      group.all_reduce(total).wait();
      CHECK(total.item<float>() == static_cast<float>(all));
      check_close(ddp.parameters(), alone.parameters(), 1e-5);
    });
  }
}

TEST_CASE("a label weighs the same, whichever batch, rank or micro-batch it is in") {
  // One label of loss 4 and 99 of loss 1 are a loss of 1.03, and never of 2.5.
  struct Slope : nn::Module {
    Tensor w = add_parameter("w", ones({1}));
    Tensor forward(const Tensor& x) override { return mean(x * w); }
  };
  const Tensor one = full({1}, 4.), many = ones({99});
  two([&](const Group& group, int rank) {
    Slope net;
    DDP ddp(net, group);
    const Tensor& mine = rank == 0 ? one : many;
    ddp.backward(ddp(mine), static_cast<double>(mine.numel()));
    CHECK(net.w.grad().item<float>() == doctest::Approx(1.03));
    ddp.zero_grad();
    {
      const auto guard = ddp.no_sync();
      ddp.backward(ddp(one), 1);
    }
    ddp.backward(ddp(many), 99);
    CHECK(net.w.grad().item<float>() == doctest::Approx(1.03));
  });
  // Eight rows with masks, over ranks and micro-batches; a rank may have no label at all.
  struct Division {
    int world, micros, rows;
  };
  for (const Division& d : {Division{1, 1, 8}, {1, 4, 2}, {2, 2, 2}, {4, 2, 1}}) {
    for (unsigned mask : {0xFFU, 0x01U, 0xA7U, 0x30U, 0x96U}) {
      CAPTURE(mask);
      ranks(d.world, [&](const Group& group, int rank) {
        nn::Sequential net = make_net(false), alone = make_net(false);
        DDP ddp(net, group);
        const auto rows_of = [&](int from, int count) {
          std::vector<float> rows;
          std::int64_t labels = 0;
          for (int i = from; i < from + count; ++i) {
            if ((mask >> i & 1) == 0) continue;
            for (int k = 0; k < 3; ++k) rows.push_back(static_cast<float>((i * 5 + k * 3) % 7 - 3));
            ++labels;
          }
          return Tensor::from(rows, {labels, 3});
        };
        for (int k = 0; k < d.micros; ++k) {
          const Tensor x = rows_of((rank * d.micros + k) * d.rows, d.rows);
          const auto backward = [&] {
            ddp.backward(mean_loss(ddp, x), static_cast<double>(x.size(0)));
          };
          if (k + 1 < d.micros) {
            const auto guard = ddp.no_sync();
            backward();
          } else {
            backward();
          }
        }
        mean_loss(alone, rows_of(0, 8)).backward();
        std::vector<Tensor> mine, theirs;
        for (const Tensor& p : net.parameters()) mine.push_back(p.grad());
        for (const Tensor& p : alone.parameters()) theirs.push_back(p.grad());
        check_close(mine, theirs, 2e-6);
      });
    }
  }
}

TEST_CASE("the last steps of an epoch are means over the samples that are left") {
  struct Case {
    int batches, accumulated;
    std::int64_t samples;               // of all ranks
    std::vector<std::int64_t> updates;  // how many samples each is of
  };
  // Batches of 4 samples, of two ranks.
  for (const Case& c :
       {Case{5, 2, 20, {8, 8, 4}}, Case{6, 4, 24, {16, 8}}, Case{3, 1, 10, {4, 4, 2}}}) {
    two([&](const Group& group, int rank) {
      nn::Sequential net = make_net(false), alone = make_net(false);
      DDP ddp(net, group);
      const auto rows_of = [&](std::int64_t from, std::int64_t to) {
        std::vector<float> rows;
        for (std::int64_t i = from; i < std::min(to, c.samples); ++i) {
          for (int k = 0; k < 3; ++k) rows.push_back(static_cast<float>((i * 5 + k * 3) % 7 - 3));
        }
        const auto n = std::max<std::int64_t>(std::min(to, c.samples) - from, 0);
        return Tensor::from(rows, {n, 3});
      };
      std::size_t update = 0;
      std::int64_t begin = 0;
      for (int k = 0; k < c.batches; ++k) {
        const Tensor x = rows_of(k * 4 + rank * 2, k * 4 + rank * 2 + 2);
        const bool last = (k + 1) % c.accumulated == 0 || k + 1 == c.batches;
        const auto backward = [&] {
          ddp.backward(mean_loss(ddp, x), static_cast<double>(x.size(0)));
        };
        if (!last) {
          const auto guard = ddp.no_sync();
          backward();
          continue;
        }
        backward();
        REQUIRE(update < c.updates.size());
        alone.zero_grad();
        mean_loss(alone, rows_of(begin, begin + c.updates[update])).backward();
        begin += c.updates[update++];
        std::vector<Tensor> mine, theirs;
        for (const Tensor& p : net.parameters()) mine.push_back(p.grad());
        for (const Tensor& p : alone.parameters()) theirs.push_back(p.grad());
        check_close(mine, theirs, 2e-6);
        ddp.zero_grad();
      }
      CHECK(update == c.updates.size());
    });
  }
}

TEST_CASE("samples count with every hook, with static_graph and with types of few bits") {
  enum class Hook { none, fp16, bf16, int8, power };
  for (const Hook hook : {Hook::none, Hook::fp16, Hook::bf16, Hook::int8, Hook::power}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const bool static_graph : {false, true}) {
        CAPTURE(concat(static_cast<int>(hook), " ", dtype, static_graph));
        two([&](const Group& group, int rank) {
          nn::Sequential net = make_net(false), alone = make_net(false);
          net.to(dtype);
          alone.to(dtype);
          DDP ddp(net, group, {.static_graph = static_graph});
          if (hook == Hook::fp16) ddp.register_comm_hook(nn::fp16_compress_hook(group));
          if (hook == Hook::bf16) ddp.register_comm_hook(nn::bf16_compress_hook(group));
          if (hook == Hook::int8) ddp.register_comm_hook(nn::int8_compress_hook(group));
          const nn::PowerSGD power(group, {.matrix_approximation_rank = 4,  // whole
                                           .start_powerSGD_iter = 1,
                                           .min_compression_rate = 0.1});
          if (hook == Hook::power) ddp.register_comm_hook(power.hook());
          for (int step = 0; step < 3; ++step) {
            ddp.zero_grad();
            alone.zero_grad();
            const auto rows = [&](int r) { return cast(batch_of(r, step), dtype); };
            const Tensor x = rows(rank);
            ddp.backward(mean_loss(ddp, x), static_cast<double>(x.size(0)));
            mean_loss(alone, cat({rows(0), rows(1)})).backward();
            std::vector<Tensor> mine, theirs;
            for (const Tensor& p : net.parameters()) mine.push_back(p.grad());
            for (const Tensor& p : alone.parameters()) theirs.push_back(p.grad());
            const bool coarse = hook != Hook::none && hook != Hook::power;
            check_close(mine, theirs, dtype == DType::bf16 || coarse ? 0.03 : 1e-4);
          }
        });
      }
    }
  }
}

TEST_CASE("a part of the world has a divisor of its own, and the rest has no say in it") {
  struct Slope : nn::Module {
    Tensor w = add_parameter("w", ones({1}));
    Tensor forward(const Tensor& x) override { return mean(x * w); }
  };
  ranks(4, [](const Group& world, int rank) {
    const Group group = world.split(rank / 2);
    constexpr std::int64_t labels[] = {1, 99, 3, 5};
    constexpr double losses[] = {4, 1, 2, 6};
    Slope net;
    DDP ddp(net, group);
    const Tensor mine = full({labels[rank]}, losses[rank]);
    ddp.backward(ddp(mine), static_cast<double>(mine.numel()));
    CHECK(net.w.grad().item<float>() == doctest::Approx(rank < 2 ? 1.03 : 4.5));
    ddp.zero_grad();
    ddp(mine).backward();  // ranks count alike, those of the group
    CHECK(net.w.grad().item<float>() == (rank < 2 ? 2.5F : 4.0F));
    nn::Join join(ddp, {.divide_by_initial_world_size = false});
    for (int turn = 0; join.next(rank % 2 == 0 || turn == 0); ++turn) {
      if (turn == 2) break;
      ddp.zero_grad();
      if (join.active()) {
        ddp(mine).backward();
      } else {
        CHECK(join.follow());
      }
      const float both = rank < 2 ? 2.5F : 4.0F, one = rank < 2 ? 4.0F : 2.0F;
      CHECK(net.w.grad().item<float>() == (turn == 0 ? both : one));
    }
  });
}

TEST_CASE("batches of one size, a power of two, are averaged without a pass of its own") {
  ranks(2, [](const Group& group, int rank) {
    nn::Sequential net = make_net(false);
    DDP ddp(net, group, {.buckets = apart});
    const auto passes = [&](std::int64_t samples) {
      ddp.zero_grad();
      const Tensor loss = mean_loss(ddp, full({samples, 3}, 1.0));
      context().trace = std::make_shared<Trace>(1000);
      ddp.backward(loss, static_cast<double>(samples));
      const auto trace = std::exchange(context().trace, nullptr);
      const auto spans = trace->spans(std::this_thread::get_id());
      REQUIRE(!spans.empty());
      return std::ranges::count_if(spans, [](const auto& each) { return each.name == "mul_"; });
    };
    CHECK(passes(8) == 0);
    CHECK(passes(8) == 0);
    CHECK(passes(rank == 0 ? 8 : 4) > 0);
    CHECK(passes(8) == 0);
    CHECK(passes(12) > 0);
    CHECK(passes(12) > 0);  // what losses are multiplied by is a power of two still
  });
}
