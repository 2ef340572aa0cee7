// SPDX-License-Identifier: Apache-2.0
// Uneven inputs: ranks with fewer batches than others, and batches of different sizes.
#include <peal/nn/layers/layers.h>
#include <peal/nn/optim/adam.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/join.h>
#include <peal/nn/parallel/sync_batch_norm.h>

#include <vector>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

// A model of whole numbers, and what its gradients are where the ranks that have a batch in `turn`
// have one of `value(rank)`.
struct Alone {
  Alone() { make_whole(model); }
  std::vector<std::vector<float>> gradients(const std::vector<double>& batches, double divisor) {
    model.zero_grad();
    for (const double value : batches) loss(model, value).backward();
    std::vector<std::vector<float>> all;
    for (const Tensor& p : model.parameters())
      all.push_back((p.grad() / divisor).to_vector<float>());
    return all;
  }
  Mlp model;
};

void check_gradients(const nn::Module& model, const std::vector<std::vector<float>>& expected) {
  const std::vector<Tensor> parameters = model.parameters();
  REQUIRE(parameters.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    REQUIRE(parameters[i].grad().defined());
    CHECK(parameters[i].grad().to_vector<float>() == expected[i]);
  }
}

}  // namespace

TEST_CASE("ranks without a batch follow until nobody has one, for two epochs") {
  for (const bool initial : {true, false}) {
    for (const nn::DDPOptions& options :
         {nn::DDPOptions{.buckets = apart}, nn::DDPOptions{.find_unused_parameters = true},
          nn::DDPOptions{.buckets = apart, .static_graph = true}}) {
      ranks(4, [&](const Group& group, int rank) {
        Mlp model;
        make_whole(model);
        DDP ddp(model, group, options);
        Alone alone;
        // Batches by rank; in the second epoch rank 0 has none at all.
        for (const auto& counts : {std::vector<int>{1, 3, 3, 2}, std::vector<int>{0, 2, 2, 4}}) {
          nn::Join join(ddp, {.divide_by_initial_world_size = initial});
          int turn = 0;
          while (join.next(turn < counts[static_cast<std::size_t>(rank)])) {
            std::vector<double> batches;
            for (int r = 0; r < 4; ++r) {
              if (turn < counts[static_cast<std::size_t>(r)]) batches.push_back(r + turn + 1);
            }
            ddp.zero_grad();
            CHECK(join.active() == (turn < counts[static_cast<std::size_t>(rank)]));
            CHECK(join.active_ranks() == static_cast<int>(batches.size()));
            if (join.active()) {
              loss(ddp, rank + turn + 1).backward();
            } else {
              CHECK(join.follow());
            }
            const double divisor = initial ? 4.0 : static_cast<double>(batches.size());
            if (divisor != 3) {  // exact
              check_gradients(ddp, alone.gradients(batches, divisor));
            }
            ++turn;
          }
          CHECK(turn == *std::max_element(counts.begin(), counts.end()));
        }
        ddp.zero_grad();  // and on without
        loss(ddp, rank + 1).backward();
        check_gradients(ddp, alone.gradients({1, 2, 3, 4}, 4));
      });
    }
  }
}

TEST_CASE("what a step left stays, once, where another adds to it and ranks have no batch") {
  for (const bool initial : {true, false}) {
    for (const bool find : {true, false}) {
      ranks(4, [&](const Group& group, int rank) {
        Mlp model;
        make_whole(model);
        DDP ddp(model, group, {.buckets = apart, .find_unused_parameters = find});
        Alone alone;
        nn::Join join(ddp, {.divide_by_initial_world_size = initial});
        for (int turn = 0; join.next(rank >= 2 && turn < 2); ++turn) {
          ddp.zero_grad();
          for (int k = 0; k < 3; ++k) {
            if (join.active()) {
              loss(ddp, rank + k).backward();
            } else {
              CHECK(join.follow());
            }
          }
          check_gradients(ddp, alone.gradients({2, 3, 4, 3, 4, 5}, initial ? 4 : 2));
        }
      });
    }
  }
}

TEST_CASE("gradients of one's own count where the batches have run out") {
  two([](const Group& group, int rank) {
    Mlp model;
    make_whole(model);
    DDP ddp(model, group, {.buckets = apart});
    Alone alone;
    nn::Join join(ddp, {.divide_by_initial_world_size = false});
    REQUIRE(join.next(true));
    loss(ddp, 1).backward();  // and what it leaves is given up
    ddp.zero_grad();
    {
      const auto guard = ddp.no_sync();
      loss(ddp, rank + 1).backward();
    }
    REQUIRE(join.next(rank == 0));
    if (rank == 0) {
      loss(ddp, 3).backward();
    } else {
      CHECK(join.follow());
    }
    check_gradients(ddp, alone.gradients({1, 2, 3}, 1));
  });
  const std::string message = failure([](const Group& group, int rank) {
    Mlp model;
    DDP ddp(model, group, {.buckets = apart});
    nn::Join join(ddp, {.divide_by_initial_world_size = false});
    join.next(true);
    loss(ddp, 1).backward();
    {
      const auto guard = ddp.no_sync();
      loss(ddp, rank + 1).backward();
    }
    join.next(rank == 0);
    if (rank == 0) {
      loss(ddp, 3).backward();
    } else {
      join.follow();
    }
  });
  CAPTURE(message);
  CHECK(message.find("rank 1: this rank follows step 2 without a batch") != std::string::npos);
}

TEST_CASE("replicas stay the same bits, with momentum and buffers, whoever runs out") {
  ranks(3, [&](const Group& group, int rank) {
    nn::Sequential net(nn::Linear(3, 4), nn::BatchNorm1d(4), nn::Linear(4, 2));
    DDP ddp(net, group);
    nn::AdamW optimizer(ddp.parameters(), {.lr = 1e-2});
    nn::Join join(ddp);
    const int mine = rank == 0 ? 1 : rank + 2;
    int turn = 0;
    while (join.next(turn < mine)) {
      optimizer.zero_grad();
      if (join.active()) {
        manual_seed(static_cast<std::uint64_t>(rank * 10 + turn));
        const Tensor y = ddp(randn({4, 3}));
        mean(y * y).backward();
      } else {
        join.follow();
      }
      optimizer.step();
      ++turn;
    }
    CHECK(turn == 4);
    for (const auto& [name, tensor] : net.named_parameters()) CHECK(same_everywhere(tensor, group));
    for (const auto& [name, tensor] : net.named_buffers()) CHECK(same_everywhere(tensor, group));
    for (const auto& [name, tensor] : optimizer.state_dict()) {
      CAPTURE(name);
      CHECK(same_everywhere(tensor, group));
    }
    // The statistics of turns that rank 0 had no part in count, too.
    const auto counted = net.named_buffers().back();
    CHECK(counted.first == "1.num_batches_tracked");
    CHECK(counted.second.item<std::int64_t>() == 4);
  });
}

TEST_CASE("turns of several forwards, accumulation and a layer's own collectives are followed") {
  // Adds what all ranks have for the mean of x, as synchronised batch norm would.
  struct Meets : nn::Module {
    explicit Meets(Group with) : group(std::move(with)) {}
    Tensor forward(const Tensor& x) override {
      const Tensor sum = full({1}, x.detach().to_vector<float>()[0]);
      nn::announce(group, {.what = nn::Announcement::What::all_reduce, .count = 1, .tag = 77});
      group.all_reduce(sum, comm::ReduceOp::sum, {"met", 77}).wait();
      const Tensor all = Tensor::zeros({2 * group.world()});
      const Tensor mine = all.detach({2}, 2 * group.rank());
      fill_(mine, 1);
      nn::announce(group, {.what = nn::Announcement::What::all_gather, .count = 2, .tag = 78});
      group.all_gather(all, mine, {"met", 78}).wait();
      met = all.to_vector<float>();
      return x * sum;
    }
    Group group;
    std::vector<float> met;
  };
  ranks(3, [&](const Group& group, int rank) {
    nn::Sequential net(nn::Linear(3, 2), Meets(group));
    DDP ddp(net, group, {.buckets = apart});
    nn::SGD optimizer(ddp.parameters(), {.lr = 1e-3});
    nn::Join join(ddp);
    for (int turn = 0; join.next(turn < 2 * (rank + 1)); ++turn) {
      const bool last = turn % 2 == 1;
      if (join.active()) {
        const auto backward = [&] { (loss(ddp, 1) + loss(ddp, 0.5)).backward(); };
        if (last) {
          backward();
        } else {
          const auto guard = ddp.no_sync();
          backward();
        }
      } else {
        CHECK(join.follow() == last);
      }
      if (last) {
        optimizer.step();
        optimizer.zero_grad();
      }
    }
    for (const Tensor& p : ddp.parameters()) CHECK(same_everywhere(p, group));
  });
}

TEST_CASE("batches of different sizes, weighed, are the gradient of the mean over all samples") {
  struct Loss {
    static Tensor of(nn::Module& model, const std::vector<float>& samples) {
      const auto n = static_cast<std::int64_t>(samples.size());
      const Tensor y = model(Tensor::from(samples, {n, 1}));
      return sum(y * y) / std::max(1.0, static_cast<double>(n));
    }
  };
  const auto close = [](const Tensor& a, const Tensor& b) {
    const auto x = a.to_vector<float>(), y = b.to_vector<float>();
    REQUIRE(x.size() == y.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      CHECK(x[i] == doctest::Approx(y[i]).epsilon(1e-6));
    }
  };
  for (const bool find : {false, true}) {
    ranks(3, [&](const Group& group, int rank) {
      nn::Sequential net(nn::Linear(1, 2)), alone(nn::Linear(1, 2));
      make_whole(net);
      make_whole(alone);
      DDP ddp(net, group, {.find_unused_parameters = find});
      // Micro-batches by rank; rank 1's second is empty, and rank 2 runs out after the first turn.
      const std::vector<std::vector<float>> batches[] = {
          {{1, 2, 3, 4, 5}, {6}, {7, 8}, {9, 10, 11}},
          {{12}, {}, {13}, {14}},
          {{15, 16}, {17, 18}}};
      nn::Join join(ddp);
      for (std::size_t turn = 0; join.next(2 * turn < batches[rank].size()); ++turn) {
        ddp.zero_grad();
        if (join.active()) {
          const auto& first = batches[rank][2 * turn];
          const auto& second = batches[rank][2 * turn + 1];
          {
            const auto guard = ddp.no_sync();
            ddp.backward(Loss::of(ddp, first), static_cast<double>(first.size()));
          }
          ddp.backward(Loss::of(ddp, second), static_cast<double>(second.size()));
        } else {
          join.follow();
        }
        std::vector<float> all;
        for (const auto& list : batches) {
          for (std::size_t k = 2 * turn; k < std::min(2 * turn + 2, list.size()); ++k) {
            all.insert(all.end(), list[k].begin(), list[k].end());
          }
        }
        alone.zero_grad();
        Loss::of(alone, all).backward();
        const auto mine = ddp.parameters(), theirs = alone.parameters();
        for (std::size_t i = 0; i < mine.size(); ++i) close(mine[i].grad(), theirs[i].grad());
      }
    });
  }
}

TEST_CASE(
    "batch norm over ranks goes on where ranks run out: equal to one process, statistics too") {
  const auto input = [](int rank, int turn) {
    std::vector<float> values;
    for (int i = 0; i < 3 * (rank + 2); ++i) {
      values.push_back(static_cast<float>((rank * 13 + turn * 5 + i * 7) % 17) / 4);
    }
    return Tensor::from(values, {rank + 2, 3});
  };
  ranks(3, [&](const Group& group, int rank) {
    const auto make = [] {
      manual_seed(3);
      return nn::Sequential(nn::Linear(3, 4), nn::BatchNorm1d(4), nn::Linear(4, 2));
    };
    nn::Sequential net = make(), alone = make();
    nn::convert_sync_batchnorm(net, group);
    DDP ddp(net, group, {.buckets = apart});
    nn::SGD optimizer(ddp.parameters(), {.lr = 0.1}), other(alone.parameters(), {.lr = 0.1});
    nn::Join join(ddp);
    const auto has = [](int r, int turn) { return turn <= r; };  // rank 0 one batch, rank 2 three
    int turn = 0;
    for (; join.next(has(rank, turn)); ++turn) {
      optimizer.zero_grad();
      if (join.active()) {
        const Tensor x = input(rank, turn), y = ddp(x);
        ddp.backward(sum(y * y) / static_cast<double>(x.size(0)), static_cast<double>(x.size(0)));
      } else {
        CHECK(join.follow());
      }
      optimizer.step();

      Tensors all;
      for (int r = 0; r < 3; ++r) {
        if (has(r, turn)) all.push_back(input(r, turn));
      }
      other.zero_grad();
      const Tensor x = cat(all), y = alone(x);
      (sum(y * y) / static_cast<double>(x.size(0))).backward();
      other.step();
    }
    CHECK(turn == 3);
    const NamedTensors mine = net.state_dict(), theirs = alone.state_dict();
    REQUIRE(mine.size() == theirs.size());
    for (std::size_t i = 0; i < mine.size(); ++i) {
      CAPTURE(mine[i].first);
      const auto a = cast(mine[i].second, DType::f32).to_vector<float>();
      const auto b = cast(theirs[i].second, DType::f32).to_vector<float>();
      for (std::size_t k = 0; k < a.size(); ++k) {
        CHECK(a[k] == doctest::Approx(b[k]).epsilon(1e-4).scale(1));
      }
      CHECK(same_everywhere(mine[i].second, group));
    }
  });
}

TEST_CASE("no sample anywhere gives gradients of nothing, not of NaN") {
  two([](const Group& group, int) {
    nn::Sequential net(nn::Linear(1, 2));
    DDP ddp(net, group);
    ddp.backward(sum(ddp(Tensor::zeros({0, 1}))), 0);
    for (const Tensor& p : net.parameters()) {
      for (const float value : p.grad().to_vector<float>()) CHECK(value == 0);
    }
  });
}

TEST_CASE("what cannot be right is said") {
  two([](const Group& group, int) {
    Mlp net;
    DDP ddp(net, group);
    CHECK_THROWS_WITH(ddp.backward(loss(ddp, 1), -1),
                      doctest::Contains("on all ranks: expected a number of samples"));
    ddp.zero_grad();
    nn::Join join(ddp);
    CHECK_THROWS_WITH(nn::Join(ddp, {}).next(true), doctest::Contains("another Join"));
    CHECK_THROWS_WITH(join.follow(), doctest::Contains("has one"));
    {
      const auto guard = ddp.no_sync();
      ddp.backward(loss(ddp, 1), 2);
    }
    CHECK_THROWS_WITH(loss(ddp, 1).backward(), doctest::Contains("each time"));
  });
}

TEST_CASE("a rank that has no batch and forgets to follow is told") {
  const std::string message = failure([](const Group& group, int rank) {
    Mlp net;
    DDP ddp(net, group);
    nn::Join join(ddp);
    for (int turn = 0; join.next(rank == 0 && turn < 2); ++turn) {
      if (join.active()) loss(ddp, 1).backward();
    }
  });
  CAPTURE(message);
  CHECK(message.find("calls follow() for each synchronised backward") != std::string::npos);
}

TEST_CASE("a rank that followed a step that failed is told what it misses in the next") {
  ranks(3, [](const Group& group, int rank) {
    Mlp net;
    DDP ddp(net, group, {.buckets = apart});
    const std::vector<Tensor> parameters = net.parameters();
    const auto partly = [&] { return sum(parameters[2]); };
    const auto whole = [&] {
      Tensor all = partly();
      for (const std::size_t p : {0, 1, 3}) all = all + sum(parameters[p]);
      return all;
    };
    nn::Join join(ddp);
    REQUIRE(join.next(rank != 2));
    const auto take = [&] {
      if (rank == 2) {
        join.follow();
      } else {
        partly().backward();
      }
    };
    CHECK_THROWS_WITH(take(), doctest::Contains("rank 1: no gradient came for 1.weight"));
    ddp.zero_grad();
    REQUIRE(join.next(true));
    CHECK_THROWS_WITH((rank == 2 ? partly() : whole()).backward(),
                      doctest::Contains("step 2: rank 2: no gradient came for 1.weight"));
  });
}

TEST_CASE("without join a rank with a batch less is an error that says which step") {
  const std::string message = failure([](const Group& group, int rank) {
    Mlp net;
    DDP ddp(net, group);
    for (int turn = 0; turn < 2 + rank; ++turn) loss(ddp, 1).backward();
    group.barrier().wait();
  });
  CAPTURE(message);
  CHECK(message.find("step 3") != std::string::npos);
}
