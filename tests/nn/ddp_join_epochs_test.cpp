// SPDX-License-Identifier: Apache-2.0
// A Join for a whole run: epoch after epoch, left in the middle, and with what comes between steps.
#include <peal/autograd/grad_slot.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/parallel/join.h>
#include <peal/nn/parallel/sync_batch_norm.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

Tensor batch(int rank, int turn) {
  std::vector<float> values;
  for (int i = 0; i < 6; ++i) values.push_back(static_cast<float>((rank * 5 + turn + i * 3) % 7));
  return Tensor::from(values, {2, 3});
}

Tensor loss_of(nn::Module& model, const Tensor& x) {
  const Tensor y = model(x);
  return mean(y * y);
}

void check_equal(const nn::Module& net, const Group& group) {
  for (const auto& [name, tensor] : net.named_parameters()) {
    CAPTURE(name);
    CHECK(same_everywhere(tensor, group));
    CHECK(same_everywhere(tensor.grad(), group));
  }
  for (const auto& [name, tensor] : net.named_buffers()) {
    CAPTURE(name);
    CHECK(same_everywhere(tensor, group));
  }
}

}  // namespace

TEST_CASE("static_graph: what the first backward of any rank uses counts, whenever that comes") {
  struct Parts : nn::Module {
    nn::Linear a = add("a", nn::Linear(3, 2)), b = add("b", nn::Linear(3, 2)),
               c = add("c", nn::Linear(3, 2));
    Tensor run(const Tensor& x, int rank) {
      const Tensor y = a(x);
      return rank == 0 ? y + c(x) : rank == 3 ? y + b(x) : y;
    }
  };
  ranks(4, [](const Group& group, int rank) {
    Parts net, alone;
    make_whole(net);
    make_whole(alone);
    DDP ddp(net, group, {.buckets = apart, .static_graph = true});
    nn::Join join(ddp);
    // Who has a batch, by turn: rank 0's first comes when rank 3, which alone uses b, has none.
    const std::vector<std::vector<int>> turns{{1, 3}, {0, 1, 2}, {0, 1, 2, 3}, {0, 1, 2, 3}};
    for (std::size_t turn = 0; turn < turns.size(); ++turn) {
      CAPTURE(turn);
      const auto& now = turns[turn];
      REQUIRE(join.next(std::find(now.begin(), now.end(), rank) != now.end()));
      net.zero_grad();
      alone.zero_grad();
      if (join.active()) {
        const Tensor x = full({2, 3}, rank + 1.);
        const Tensor y = ddp.call(&Parts::run, x, rank), z = alone.run(x, rank);
        sum(y * y).backward();
        sum(z * z).backward();
      } else {
        REQUIRE(join.follow());
      }
      const NamedTensors mine = net.named_parameters(), theirs = alone.named_parameters();
      for (std::size_t i = 0; i < mine.size(); ++i) {
        CAPTURE(mine[i].first);
        const Tensor own = theirs[i].second.grad(), got = mine[i].second.grad();
        const Tensor sum = own.defined() ? own.clone() : Tensor::zeros(mine[i].second.shape());
        group.all_reduce(sum, comm::ReduceOp::avg).wait();
        const bool no_use_yet = turn == 0 && mine[i].first.starts_with("c.");
        REQUIRE(got.defined() == !no_use_yet);
        if (got.defined()) CHECK(got.to_vector<float>() == sum.to_vector<float>());
      }
    }
  });
}

TEST_CASE("one Join serves all epochs, also where forwards have no backward") {
  enum class Extra { none, forward, skipped };
  for (const Extra extra : {Extra::none, Extra::forward, Extra::skipped}) {
    ranks(3, [&](const Group& group, int rank) {
      nn::Sequential net(nn::Linear(3, 4), nn::BatchNorm1d(4), nn::Linear(4, 2));
      DDP ddp(net, group, {.buckets = apart});
      nn::Join join(ddp);
      for (int epoch = 0; epoch < 4; ++epoch) {
        const int mine = epoch == 2 ? 2 : 1 + (rank + epoch) % 3;  // in one epoch all have two
        const int last = epoch == 2 ? 1 : 2;
        int turn = 0;
        for (; join.next(turn < mine); ++turn) {
          ddp.zero_grad();
          const bool skips = extra == Extra::skipped && turn == last;  // a loss that is NaN, say
          if (!join.active()) {
            CHECK(join.follow() == !skips);
            continue;
          }
          const Tensor of_batch = loss_of(ddp, batch(rank, turn));
          if (!skips) of_batch.backward();
          if (extra == Extra::forward) loss_of(ddp, batch(rank, turn));  // what it has learnt
        }
        CHECK(turn == last + 1);
      }
      ddp.zero_grad();
      loss_of(ddp, batch(rank, 0)).backward();
      check_equal(net, group);
    });
  }
}

TEST_CASE("a Join may be left where ranks have no batch, and another begun, or none") {
  for (const bool another : {true, false}) {
    ranks(3, [&](const Group& group, int rank) {
      nn::Sequential net(nn::Linear(3, 4), nn::BatchNorm1d(4), nn::Linear(4, 2));
      DDP ddp(net, group, {.buckets = apart});
      for (int epoch = 0; epoch < 2; ++epoch) {
        nn::Join join(ddp);
        for (int turn = 0; join.next(turn <= rank); ++turn) {
          ddp.zero_grad();
          if (join.active()) {
            loss_of(ddp, batch(rank, turn)).backward();
          } else {
            CHECK(join.follow());
          }
          if (turn == 1) break;
        }
        if (!another) break;
      }
      ddp.zero_grad();
      loss_of(ddp, batch(rank, 0)).backward();
      check_equal(net, group);
    });
  }
}

TEST_CASE("synchronised batch norm of another group is told before a rank runs out") {
  ranks(4, [](const Group& group, int rank) {
    const Group node = group.split(rank / 2), alone = group.split(rank);
    nn::Sequential net(nn::Linear(3, 4), nn::BatchNorm1d(4), nn::Linear(4, 2));
    nn::convert_sync_batchnorm(net, node);
    CHECK_THROWS_WITH(nn::Join(DDP(net, group)).next(true),
                      doctest::Contains("[ddp] Join: on all ranks: 1 is a SyncBatchNorm over "
                                        "another group than the wrapper's"));
    nn::Sequential own(nn::Linear(3, 4), nn::BatchNorm1d(4), nn::Linear(4, 2));
    nn::convert_sync_batchnorm(own, alone);  // sends nothing
    nn::Join(DDP(own, group)).next(false);
    nn::Sequential whole(nn::Linear(3, 4), nn::BatchNorm1d(4), nn::Linear(4, 2));
    nn::convert_sync_batchnorm(whole, group);
    nn::Join(DDP(whole, group)).next(false);
  });
}

TEST_CASE("a backward that an exception left costs no later one, where the rank has followed") {
  two([](const Group& group, int rank) {
    Mlp net;
    DDP ddp(net, group);  // of one bucket
    nn::Join join(ddp);
    bool throws = true;
    net.parameters()[0].grad_slot().add_hook([&](const Tensor&) {
      if (throws) throw Error("once");
    });
    REQUIRE(join.next(true));
    CHECK_THROWS_WITH(loss(ddp, 1).backward(), "once");  // on all, and nothing was sent
    CHECK_NOTHROW(ddp.register_comm_hook(nn::average_gradients(group)));
    throws = false;
    for (const bool all : {false, true}) {
      ddp.zero_grad();
      REQUIRE(join.next(rank == 0 || all));
      if (join.active()) {
        CHECK_NOTHROW(loss(ddp, 1).backward());
      } else {
        CHECK(join.follow());
      }
    }
    check_equal(net, group);
  });
}

TEST_CASE("what the last rank's extra forward wrote is what all have when the epoch is over") {
  two([](const Group& group, int rank) {
    nn::Sequential net(nn::Linear(3, 4), nn::BatchNorm1d(4));
    DDP ddp(net, group);
    nn::Join join(ddp);
    Tensor last;
    for (int turn = 0; join.next(turn <= rank); ++turn) {
      ddp.zero_grad();
      if (!join.active()) {
        REQUIRE(join.follow());
        continue;
      }
      loss_of(ddp, batch(rank, turn)).backward();
      if (turn == 1) {
        ddp(batch(rank, 5));
        last = net.get_buffer("1.running_mean").clone();
      }
    }
    ddp.eval();
    ddp(batch(0, 0));  // makes them equal
    check_equal(net, group);
    const auto mean = net.get_buffer("1.running_mean").to_vector<float>();
    if (rank == 1) CHECK(mean == last.to_vector<float>());
  });
}
