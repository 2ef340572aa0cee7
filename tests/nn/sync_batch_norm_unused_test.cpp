// SPDX-License-Identifier: Apache-2.0
// Synchronised batch norm where ranks use other parameters, or have batches at other times: its
// collectives and the buckets come in one order on all ranks.
#include <peal/autograd/grad_slot.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/join.h>
#include <peal/nn/parallel/sync_batch_norm.h>

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

// A branch that some calls take, first in forward, and first in the plan, too: before layers whose
// gradients come before the norm's collective in backward.
struct NetWithBranch : nn::Module {
  nn::Linear in = add("in", nn::Linear(3, 4));
  nn::BatchNorm1d norm = add("norm", nn::BatchNorm1d(4));
  nn::Linear out = add("out", nn::Linear(4, 2)), branch = add("branch", nn::Linear(3, 3));
  NetWithBranch() { to(DType::f64); }
  Tensor before(const Tensor& x, bool takes) { return takes ? branch(x) : x; }
  Tensor after(const Tensor& x) { return out(norm(in(x))); }
  Tensor beside(const Tensor& x, bool takes) {
    const Tensor y = after(x);
    return takes ? y + sum(branch(x)) : y;
  }
  Tensor all(const Tensor& x, bool takes) { return after(before(x, takes)); }
  // The branch is recomputed in backward, before the norm's collective; no graph shows it.
  Tensor hidden(const Tensor& x, bool takes) {
    const Tensor y = norm(in(x)), of_branch = x.clone();
    of_branch.set_requires_grad();
    const Tensor add = takes ? sum(again(branch, of_branch)) : Tensor::zeros({}, DType::f64);
    return out(y) + add;
  }
};

// A model on two ranks, and the same on one that has the batches of both.
struct BothWithBranch {
  BothWithBranch(const Group& group, nn::DDPOptions options) {
    net.load_state_dict(alone.state_dict());
    nn::convert_sync_batchnorm(net, group);
    options.buckets = apart;
    ddp = std::make_unique<DDP>(net, group, options);
  }
  static Tensor x(int rank, int step) {
    std::vector<double> values;
    for (int i = 0; i < 12; ++i)
      values.push_back((rank * 31 + step * 17 + i * 7) % 23 / 8.0 - 1.25);
    return Tensor::from(values, {4, 3});
  }
  static Tensor loss(const Tensor& y) { return sum(y * y); }
  void backward(int rank, int step, bool takes) {
    loss(ddp->call(&NetWithBranch::all, x(rank, step), takes)).backward();
  }
  // Gradients are those of the ranks in `active`, of which those in `takes` take the branch.
  void check(int step, int active, int takes) {
    Tensors parts;
    for (const int r : {0, 1}) {
      if ((active >> r & 1) != 0) parts.push_back(alone.before(x(r, step), (takes >> r & 1) != 0));
    }
    check_is(step, loss(alone.after(cat(parts))) / 2.0);
  }
  // Gradients are those of that loss of `alone`.
  void check_is(int step, const Tensor& loss_alone) {
    alone.zero_grad();
    loss_alone.backward();
    const NamedTensors mine = net.named_parameters(), theirs = alone.named_parameters();
    for (std::size_t i = 0; i < mine.size(); ++i) {
      CAPTURE(mine[i].first);
      CAPTURE(step);
      const Tensor got = mine[i].second.grad(), want = theirs[i].second.grad();
      REQUIRE(got.defined() == want.defined());
      if (got.defined()) CHECK(max(abs(got - want)).item<double>() < 1e-12);
    }
    net.zero_grad();
  }

  NetWithBranch net, alone;
  std::unique_ptr<DDP> ddp;
};

}  // namespace

TEST_CASE("ranks that use other parameters in each step, before a layer that meets") {
  two([](const Group& group, int rank) {
    BothWithBranch both(group, {.find_unused_parameters = true});
    const int taken[] = {3, 1, 2, 0, 1, 3, 2, 2, 0, 3};
    int step = 0;
    for (const int takes : taken) {
      both.backward(rank, step, (takes >> rank & 1) != 0);
      both.check(step++, 3, takes);
    }
  });
}

TEST_CASE("ranks that use other parameters in every step, before a layer that meets") {
  two([](const Group& group, int rank) {
    BothWithBranch both(group, {.static_graph = true, .order = start_order(NetWithBranch())});
    for (int step = 0; step < 4; ++step) {
      both.backward(rank, step, rank == 0);
      both.check(step, 3, 1);
    }
  });
}

TEST_CASE("a rank whose first batch comes later than another's, before a layer that meets") {
  for (const bool is_static : {false, true}) {
    two([&](const Group& group, int rank) {
      BothWithBranch both(group, {.find_unused_parameters = !is_static, .static_graph = is_static});
      nn::Join join(*both.ddp);
      int step = 0;
      for (int epoch = 0; epoch < 3; ++epoch) {  // rank 1 has no batch in the first
        for (int k = 0; join.next(k < 2 && (rank == 0 || epoch > 0)); ++k) {
          if (join.active()) {
            both.backward(rank, step, true);
          } else {
            REQUIRE(join.follow());
          }
          both.check(step++, epoch > 0 ? 3 : 1, 3);
        }
      }
    });
  }
}

TEST_CASE("a rank without a batch in the second step, where steps are alike and ranks are not") {
  two([](const Group& group, int rank) {
    BothWithBranch both(group, {.static_graph = true, .order = start_order(NetWithBranch())});
    nn::Join join(*both.ddp);
    int step = 0;
    for (int epoch = 0; epoch < 3; ++epoch) {
      const int batches = rank == 1 && epoch == 0 ? 1 : 2;
      for (int k = 0; join.next(k < batches); ++k) {
        if (join.active()) {
          both.backward(rank, step, rank == 0);
        } else {
          REQUIRE(join.follow());
        }
        both.check(step, step == 1 ? 1 : 3, 1);
        ++step;
      }
    }
    CHECK(step == 6);
  });
}

TEST_CASE("a recomputed segment that some ranks leave out, behind a layer that meets") {
  two([](const Group& group, int rank) {
    BothWithBranch both(group, {.find_unused_parameters = true});
    const int taken[] = {1, 3, 2, 0, 1, 3};  // both have had it from the second step on
    int step = 0;
    for (const int takes : taken) {
      const auto has = [&](int r) { return (takes >> r & 1) != 0; };
      both.loss(both.ddp->call(&NetWithBranch::hidden, both.x(rank, step), has(rank))).backward();
      const Tensor y = both.alone.norm(both.alone.in(cat({both.x(0, step), both.x(1, step)})));
      Tensor total = Tensor::zeros({}, DType::f64);
      for (const int r : {0, 1}) {
        const Tensor own = both.alone.out(narrow(y, 0, r * 4, 4));
        const Tensor x = both.x(r, step);
        total = total + both.loss(has(r) ? own + sum(both.alone.branch(x)) : own);
      }
      both.check_is(step++, total / 2.0);
    }
  });
}

TEST_CASE("told: a parameter without a gradient on one rank, before a layer that meets") {
  const std::string message = failure([](const Group& group, int rank) {
    BothWithBranch both(group, {});
    const Tensor y = both.ddp->call(&NetWithBranch::beside, both.x(rank, 0), rank == 0);
    both.loss(y).backward();
  });
  CAPTURE(message);
  CHECK(message.find("bucket 0: branch.bias") != std::string::npos);
  CHECK(message.find("SyncBatchNorm norm, backward") != std::string::npos);
  CHECK(message.find("a parameter may have got no gradient on some rank") != std::string::npos);
  CHECK(message.find("find_unused_parameters takes such steps") != std::string::npos);
}

TEST_CASE("ranks that use the same parameters send buckets as these fill") {
  two([](const Group& group, int rank) {
    BothWithBranch both(group, {.find_unused_parameters = true});
    std::vector<std::size_t> at_norm;  // buckets that were sent when the gradient of `in` came
    std::size_t sent = 0;
    both.ddp->register_comm_hook([&](nn::GradBucket& bucket) {
      ++sent;
      return group.all_reduce(bucket.buffer, comm::ReduceOp::avg, bucket.label);
    });
    both.net.in.weight.grad_slot().add_hook([&](const Tensor&) { at_norm.push_back(sent); });
    const int taken[] = {0, 0, 1, 0};  // by both ranks, but once by one
    for (int step = 0; step < 4; ++step) {
      sent = 0;
      both.backward(rank, step, (taken[step] >> rank & 1) != 0);
      both.check(step, 3, taken[step]);
    }
    REQUIRE(at_norm.size() == 4);
    CHECK(at_norm[0] == 0);  // nothing is known to be unused yet
    CHECK(at_norm[1] >= 4);
    CHECK(at_norm[2] == 0);
    CHECK(at_norm[3] >= 4);
  });
}
