// SPDX-License-Identifier: Apache-2.0
// Synchronised batch norm against batch norm over the whole batch on one rank: outputs, gradients
// and running statistics, for every number of ranks, type, number of dimensions and way to share
// the batch out, empty shares included.
#include <peal/nn/layers/layers.h>
#include <peal/nn/parallel/sync_batch_norm.h>
#include <peal/tests/difference.h>
#include <peal/tests/errors.h>

#include "ddp_ranks.h"

#include <cmath>
#include <mutex>
#include <numeric>
#include <optional>
#include <vector>

using namespace peal;
using namespace peal::testing;

namespace {

constexpr std::int64_t channels = 3;

// How many samples each rank has.
using Shares = std::vector<std::int64_t>;

std::vector<Shares> shares_of(int world) {
  switch (world) {
    case 1:
      return {{5}};
    case 2:
      return {{3, 3}, {5, 1}, {0, 4}, {1, 1}};
    case 3:
      return {{2, 2, 2}, {4, 0, 1}, {1, 3, 2}};
    default:
      return {{2, 2, 2, 2}, {0, 0, 3, 0}, {1, 2, 3, 4}};
  }
}

Shape with_samples(const Shape& sample, std::int64_t n) {
  Shape shape{n};
  for (const std::int64_t size : sample) shape.push_back(size);
  return shape;
}

Tensor part_of(const Tensor& whole, const Shares& shares, int rank) {
  const std::int64_t begin =
      std::accumulate(shares.begin(), shares.begin() + rank, std::int64_t{0});
  return whole.detach().rows(begin, begin + shares[static_cast<std::size_t>(rank)]).clone();
}

// Where this is not zero, the other has to be about as large.
double difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  const Tensor x = cast(a.detach(), DType::f64), y = cast(b.detach(), DType::f64);
  double worst = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double one = x.data<double>()[i], other = y.data<double>()[i];
    worst = larger(worst, std::abs(one - other) / std::max(1.0, std::abs(other)));
  }
  return worst;
}

nn::Module plain_norm(int dims, const nn::BatchNormSettings& settings) {
  if (dims == 4) return nn::BatchNorm2d(channels, settings);
  if (dims == 5) return nn::BatchNorm3d(channels, settings);
  return nn::BatchNorm1d(channels, settings);
}

// The greatest difference over three steps, on this rank.
double worst_of(const Group& group, const Shares& shares, const Shape& sample, DType dtype,
                const nn::BatchNormSettings& settings, double offset) {
  const int rank = group.rank();
  const std::int64_t samples = std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
  nn::Module alone = plain_norm(sample.dim() + 1, settings);
  nn::SyncBatchNorm norm(channels, group, settings);
  for (nn::Module* const module : {&alone, static_cast<nn::Module*>(&norm)}) {
    manual_seed(3);
    module->to(dtype);
    for (const Tensor& p : module->parameters()) p.copy_(randn(p.shape(), dtype) + 1.0);
  }
  double worst = 0;
  for (int step = 0; step < 3; ++step) {
    manual_seed(static_cast<std::uint64_t>(10 + step));
    const Tensor x = randn(with_samples(sample, samples), dtype) * 2.0 + offset;
    const Tensor slope = randn(x.shape(), dtype);
    const Tensor whole = x.clone().set_requires_grad();
    const Tensor mine = part_of(x, shares, rank).set_requires_grad();
    const Tensor expected = alone(whole), y = norm(mine);
    worst = larger(worst, difference(y, part_of(expected, shares, rank)));
    for (nn::Module* const module : {&alone, static_cast<nn::Module*>(&norm)}) module->zero_grad();
    sum(expected * slope).backward();
    sum(y * part_of(slope, shares, rank)).backward();
    worst = larger(worst, difference(mine.grad(), part_of(whole.grad(), shares, rank)));
    Tensors mine_of, all_of;
    for (const Tensor& p : norm.parameters()) mine_of.push_back(p.grad());
    for (const Tensor& p : alone.parameters()) all_of.push_back(p.grad());
    if (!mine_of.empty()) {
      const Tensor total = cat(mine_of);
      group.all_reduce(total).wait();
      worst = larger(worst, difference(total, cat(all_of)));
    }
    const NamedTensors buffers = norm.named_buffers(), others = alone.named_buffers();
    REQUIRE(buffers.size() == others.size());
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      worst = larger(worst, difference(buffers[i].second, others[i].second));
      if (step == 2 && i < 2) CHECK(same_everywhere(buffers[i].second, group));
    }
  }
  return worst;
}

// ... on all ranks, in all ways to share a batch out.
double worst_of(const Shape& sample, DType dtype, const nn::BatchNormSettings& settings = {},
                double offset = 1) {
  double worst = 0;
  std::mutex mutex;
  for (int world = 1; world <= 4; ++world) {
    ranks(world, [&](const Group& group, int) {
      for (const Shares& shares : shares_of(world)) {
        const double mine = worst_of(group, shares, sample, dtype, settings, offset);
        const std::lock_guard lock(mutex);
        worst = larger(worst, mine);
      }
    });
  }
  return worst;
}

}  // namespace

TEST_CASE("it is batch norm over the whole batch, in f64") {
  for (const Shape& sample :
       {Shape{channels}, Shape{channels, 5}, Shape{channels, 2, 3}, Shape{channels, 2, 1, 2}}) {
    CAPTURE(concat(sample));
    const double worst = worst_of(sample, DType::f64);
    MESSAGE("f64 ", concat(sample), ": greatest difference ", worst);
    CHECK(worst < 1e-12);
  }
}

TEST_CASE("it is batch norm over the whole batch, in f32") {
  for (const Shape& sample : {Shape{channels}, Shape{channels, 40}, Shape{channels, 5, 7}}) {
    CAPTURE(concat(sample));
    const double worst = worst_of(sample, DType::f32);
    MESSAGE("f32 ", concat(sample), ": greatest difference ", worst);
    CHECK(worst < 2e-5);
  }
}

TEST_CASE("without weights, without running statistics, and with their average over all batches") {
  CHECK(worst_of({channels, 4}, DType::f64, {.affine = false}) < 1e-12);
  CHECK(worst_of({channels, 4}, DType::f64, {.bias = false}) < 1e-12);
  CHECK(worst_of({channels, 4}, DType::f64, {.track = false}) < 1e-12);
  CHECK(worst_of({channels, 4}, DType::f64, {.eps = 0.1, .momentum = std::nullopt}) < 1e-12);
}

TEST_CASE("means that are large beside deviations do not cancel") {
  // 1000 has 6e-5 between its neighbours, which deviations of 2 feel.
  CHECK(worst_of({channels, 4}, DType::f32, {}, 1e3) < 2e-3);
}

TEST_CASE("low precision has its statistics in f32") {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    two([&](const Group& group, int rank) {
      nn::BatchNorm1d alone(channels);
      nn::SyncBatchNorm norm(channels, group);
      const Shares shares{3, 5};
      const Tensor x = cast(randn({8, channels, 6}) + 3.0, dtype);
      const Tensor mine = part_of(x, shares, rank).set_requires_grad();
      const Tensor whole = x.clone().set_requires_grad();
      const Tensor y = norm(mine), expected = alone(whole);
      CHECK(y.dtype() == dtype);
      const double bound = dtype == DType::bf16 ? 0x1p-7 : 0x1p-10;
      CHECK(difference(y, part_of(expected, shares, rank)) <= bound);
      // In bf16 itself these would be 4e-3 apart.
      CHECK(difference(norm.running_mean, alone.running_mean) < 1e-6);
      CHECK(difference(norm.running_var, alone.running_var) < 1e-6);
      const Tensor slope = cast(randn(x.shape()), dtype);
      sum(expected * slope).backward();
      sum(y * part_of(slope, shares, rank)).backward();
      CHECK(mine.grad().dtype() == dtype);
      CHECK(difference(mine.grad(), part_of(whole.grad(), shares, rank)) <= bound);
      // A model that is in low precision as a whole.
      nn::SyncBatchNorm narrow(channels, group);
      narrow.to(dtype);
      sum(narrow(mine)).backward();
      CHECK(narrow.weight.grad().dtype() == dtype);
      CHECK(same_everywhere(narrow.running_var, group));
    });
  }
}

TEST_CASE("the gradient is the slope of the loss over all ranks") {
  ranks(3, [](const Group& group, int rank) {
    const Shares shares{1, 0, 2};
    nn::SyncBatchNorm norm(channels, group);
    norm.to(DType::f64);
    const Tensor slope = randn({3, channels, 2}, DType::f64);
    const Tensor x = part_of(randn(slope.shape(), DType::f64), shares, rank).set_requires_grad();
    const auto loss_at = [&](const Tensor& at) {
      const Tensor y = norm(at);
      return sum(y * y * part_of(slope, shares, rank));
    };
    loss_at(x).backward();
    // Every rank's elements in turn, while the others' stay.
    for (int who = 0; who < group.world(); ++who) {
      const std::int64_t elements = shares[static_cast<std::size_t>(who)] * channels * 2;
      for (std::int64_t i = 0; i < elements; ++i) {
        double both[2];
        for (const int side : {0, 1}) {
          const NoGrad guard;
          const Tensor moved = x.detach().clone();
          if (rank == who) moved.data<double>()[i] += side == 0 ? 1e-5 : -1e-5;
          const Tensor total = loss_at(moved);
          group.all_reduce(total).wait();
          both[side] = total.item<double>();
        }
        if (rank == who) {
          CHECK(x.grad().data<double>()[i] ==
                doctest::Approx((both[0] - both[1]) / 2e-5).epsilon(1e-6));
        }
      }
    }
  });
}

TEST_CASE("a rank takes part in backward, whether or not its input wants a gradient") {
  ranks(3, [](const Group& group, int rank) {
    nn::SyncBatchNorm norm(channels, group, {.affine = false});
    const Tensor x = randn({2, channels});
    if (rank == 1) x.set_requires_grad();
    const Tensor y = norm(x);
    CHECK(y.requires_grad());
    const std::uint64_t before = group.sequence();
    sum(y * y).backward();
    CHECK(group.sequence() == before + 1);
    CHECK(x.grad().defined() == (rank == 1));
    const NoGrad guard;
    CHECK(!norm(x.detach()).requires_grad());
  });
}

TEST_CASE("uses of one norm go back in the same order on all ranks, whatever came into them") {
  two([](const Group& group, int rank) {
    std::vector<std::vector<float>> found;
    for (const bool results : {true, false}) {  // on rank 1
      manual_seed(5 + static_cast<std::uint64_t>(rank));
      nn::SyncBatchNorm norm(channels, group);
      const Tensor a = randn({3, channels}), b = randn({3, channels}) * 2.0;
      if (rank == 0 || results) {
        a.set_requires_grad();
        b.set_requires_grad();
      }
      const Tensor of_a = norm(rank == 0 || results ? a * 1.0 : a);
      const Tensor of_b = relu(norm(rank == 0 || results ? b * 1.0 : b));
      sum((of_a * of_a + of_b) * (of_b - of_a)).backward();
      if (rank == 0) found.push_back(a.grad().to_vector<float>());
      if (rank == 0) found.push_back(b.grad().to_vector<float>());
    }
    if (rank != 0) return;
    CHECK(found[0] == found[2]);
    CHECK(found[1] == found[3]);
  });
}

TEST_CASE("in evaluation nothing is sent, nor on one rank") {
  two([](const Group& group, int rank) {
    nn::SyncBatchNorm norm(channels, group);
    const Tensor x = randn({4, channels}) + rank;
    norm(x);
    norm.eval();
    nn::SyncBatchNorm bare(channels, group, {.track = false});
    bare.eval();
    const std::uint64_t before = group.sequence();
    const Tensor y = norm(ones({1, channels}));
    bare(x);
    CHECK(group.sequence() == before);
    CHECK(same_everywhere(y.detach(), group));
  });
  nn::SyncBatchNorm norm(2, Group::alone());
  nn::BatchNorm1d plain(2);
  const Tensor x = randn({5, 2});
  CHECK(norm(x).to_vector<float>() == plain(x).to_vector<float>());
  check_has(error_of([&] { norm(ones({1, 2})); }), "expected more than one value a channel");
}

TEST_CASE("a norm that is a member, and was registered afterwards, is converted in its place") {
  struct Normed : nn::Module {
    Normed() : norm(channels) { register_module("norm", norm); }
    nn::BatchNorm1d norm;
    Tensor forward(const Tensor& x) override { return norm(x); }
  };
  two([](const Group& group, int) {
    Normed net;
    nn::convert_sync_batchnorm(net, group);
    const std::uint64_t before = group.sequence();
    net(randn({4, channels}));
    CHECK(group.sequence() > before);
  });
}

TEST_CASE("what it refuses") {
  const std::string one = failure([](const Group& group, int rank) {
    nn::Sequential net(nn::ReLU{}, nn::BatchNorm1d(channels));
    nn::convert_sync_batchnorm(net, group);
    net(ones({rank, channels}));
  });
  check_has(one,
            "SyncBatchNorm 1: expected more than one value a channel to train with, got 1 in 2 "
            "parts");
  const std::string none = failure([](const Group& group, int) {
    nn::SyncBatchNorm norm(channels, group);
    norm(ones({0, channels, 4}));
  });
  check_has(none, "got 0 in 2 parts, of which this has shape [0, 3, 4]");
  check_has(error_of([] { nn::SyncBatchNorm(3, Group()); }),
            "SyncBatchNorm: expected a process group, got none");
  check_has(error_of([] { nn::SyncBatchNorm(3, Group::alone())(ones({3})); }),
            "SyncBatchNorm: expected [N, C] or [N, C, ...], got shape [3]");
}

TEST_CASE("a rank that leaves the layer out is an error that names it, on all ranks") {
  struct Normed : nn::Module {
    nn::Linear fc = add("fc", nn::Linear(3, 3));
    nn::BatchNorm1d norm = add("norm", nn::BatchNorm1d(3));
    Tensor both(const Tensor& x, bool skip) { return skip ? fc(x) : norm(fc(x)); }
  };
  // In forward rank 1 goes on to the gradients.
  const std::string in_step = failure([](const Group& group, int rank) {
    Normed net;
    nn::convert_sync_batchnorm(net, group);
    net.norm.weight.set_requires_grad(false);
    net.norm.bias.set_requires_grad(false);
    DDP ddp(net, group, {.buckets = {}, .broadcast_buffers = false});
    sum(net.both(randn({4, 3}), rank == 1)).backward();
  });
  MESSAGE(in_step);
  check_has(in_step, "SyncBatchNorm norm, forward");
  check_has(in_step, "fc.weight");
  // Rank 1 has no step at all.
  const std::string alone = failure([](const Group& group, int rank) {
    Normed net;
    nn::convert_sync_batchnorm(net, group);
    if (rank == 0) net.both(randn({4, 3}), false);
  });
  MESSAGE(alone);
  check_has(alone, "SyncBatchNorm norm, forward");
  // Rank 1 looks at its outputs, and has no backward.
  const std::string backward = failure([](const Group& group, int rank) {
    Normed net;
    nn::convert_sync_batchnorm(net, group);
    for (int step = 0; step < 2; ++step) {
      const Tensor y = net.both(randn({4, 3}), false);
      if (rank == 0 || step == 1) sum(y * y).backward();
    }
  });
  MESSAGE(backward);
  check_has(backward, "SyncBatchNorm norm, backward");
  // Models that differ: other channels.
  const std::string wider = failure([](const Group& group, int rank) {
    nn::SyncBatchNorm norm(3 + rank, group);
    norm(ones({2, 3 + rank}));
  });
  MESSAGE(wider);
  check_has(wider, "SyncBatchNorm, forward");
}
