// SPDX-License-Identifier: Apache-2.0
// Running statistics that synchronised batch norm has made equal are not sent again; what anybody
// else writes into them is.
#include <peal/nn/layers/layers.h>
#include <peal/nn/parallel/join.h>
#include <peal/nn/parallel/sync_batch_norm.h>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

struct TwoNorms : nn::Module {
  nn::Linear fc = add("fc", nn::Linear(3, 4));
  nn::BatchNorm1d norm = add("norm", nn::BatchNorm1d(4)),
                  second = add("second", nn::BatchNorm1d(4));
  Tensor forward(const Tensor& x) override { return second(relu(norm(fc(x)))); }
};

constexpr std::uint64_t question = 1, bucket = 1;       // collectives of a step
constexpr std::uint64_t statistics = 2, gradients = 2;  // of two layers

void step(DDP& ddp, int rank) {
  ddp.zero_grad();
  const Tensor y = ddp(randn({3, 3}) + rank);
  sum(y * y).backward();
}

void check_equal(const TwoNorms& net, const Group& group) {
  for (const auto& [name, buffer] : net.named_buffers()) {
    CAPTURE(name);
    CHECK(same_everywhere(buffer, group));
  }
}

}  // namespace

TEST_CASE("running statistics of synchronised layers are not sent, and plain ones are") {
  for (const bool synchronised : {true, false}) {
    ranks(3, [&](const Group& group, int rank) {
      TwoNorms net;
      if (synchronised) nn::convert_sync_batchnorm(net, group);
      DDP ddp(net, group);
      manual_seed(static_cast<std::uint64_t>(rank));
      for (int k = 0; k < 2; ++k) step(ddp, rank);  // the second learns the order of buckets
      const std::uint64_t before = group.sequence();
      step(ddp, rank);
      const std::uint64_t own = synchronised ? statistics + gradients : 0;
      const std::uint64_t sent = group.sequence() - before - own - question - bucket;
      CHECK((sent == 0) == synchronised);
      check_equal(net, group);
    });
  }
}

TEST_CASE("what somebody else writes into them is sent") {
  two([](const Group& group, int rank) {
    TwoNorms net;
    nn::convert_sync_batchnorm(net, group);
    DDP ddp(net, group);
    manual_seed(static_cast<std::uint64_t>(rank));
    step(ddp, rank);
    for (const bool before_forward : {true, false}) {
      if (before_forward && rank == 1) fill_(net.norm.running_mean, 5);
      ddp.zero_grad();
      const Tensor y = ddp(randn({3, 3}));
      if (!before_forward && rank == 1) fill_(net.second.running_var, 7);
      sum(y * y).backward();
      check_equal(net, group);
      CHECK(net.second.running_var.to_vector<float>()[0] < 5);
    }
  });
}

TEST_CASE("those of a layer over another group are sent") {
  ranks(4, [](const Group& group, int rank) {
    TwoNorms net;
    const Group half = group.split(rank / 2);
    nn::convert_sync_batchnorm(net, half);
    DDP ddp(net, group);
    manual_seed(static_cast<std::uint64_t>(rank));
    for (int k = 0; k < 3; ++k) step(ddp, rank);
    check_equal(net, group);
  });
}

TEST_CASE("ranks that had no batch get them, for two epochs, with accumulation") {
  two([](const Group& group, int rank) {
    TwoNorms net;
    nn::convert_sync_batchnorm(net, group);
    DDP ddp(net, group);
    manual_seed(static_cast<std::uint64_t>(rank));
    nn::Join join(ddp);
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (int turn = 0; join.next(turn < (rank == 1 ? 4 : 2)); ++turn) {
        ddp.zero_grad();
        if (!join.active()) {
          CHECK(join.follow());
        } else {
          {
            const auto guard = ddp.no_sync();
            sum(ddp(randn({3, 3}))).backward();
          }
          sum(ddp(randn({3, 3}))).backward();
        }
        check_equal(net, group);
      }
    }
  });
}
