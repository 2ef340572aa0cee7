// SPDX-License-Identifier: Apache-2.0
// Buffers under DDP: equal on all ranks wherever somebody reads them, and written only where they
// differ.
#include <peal/nn/checkpoint.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/optim/sgd.h>
#include <peal/tests/folder.h>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

struct Normed : nn::Module {
  nn::BatchNorm1d norm = add("norm", nn::BatchNorm1d(3));
  nn::Linear fc = add("fc", nn::Linear(3, 2));
  Tensor forward(const Tensor& x) override { return fc(norm(x)); }
  // Two inputs: no virtual forward, and no hooks.
  Tensor both(const Tensor& a, const Tensor& b) { return fc(norm(a + b)); }
};

Tensor own_batch(int rank) {
  manual_seed(static_cast<std::uint64_t>(9 + rank));
  return randn({8, 3});
}

void check_equal_buffers(const nn::Module& model, const comm::ProcessGroup& group) {
  for (const auto& [name, buffer] : model.named_buffers()) {
    CAPTURE(name);
    CHECK(same_everywhere(buffer, group));
  }
}

}  // namespace

TEST_CASE("all ranks evaluate one model after training forwards") {
  two([](const Group& group, int rank) {
    Normed net;
    DDP ddp(net, group);
    ddp(own_batch(rank));
    ddp.eval();
    const Tensor y = ddp(ones({1, 3}));
    CHECK(same_everywhere(y.detach(), group));
    check_equal_buffers(ddp, group);
    const Tensor mean = net.norm.running_mean.clone();
    CHECK(mean.to_vector<float>() != std::vector<float>{0, 0, 0});
  });
}

TEST_CASE("after a step all ranks have one model, and any of them may evaluate it alone") {
  two([](const Group& group, int rank) {
    Normed net;
    DDP ddp(net, group);
    for (int k = 0; k < 3; ++k) {
      ddp.zero_grad();
      sum(ddp(own_batch(rank + 2 * k))).backward();
      check_equal_buffers(ddp, group);
    }
    const std::uint64_t before = group.sequence();
    if (rank == 0) {
      ddp.eval();
      ddp(ones({1, 3}));
      ddp.train();
    }
    CHECK(group.sequence() == before);
    sum(ddp(own_batch(rank))).backward();
  });
}

TEST_CASE("a model with a forward of its own has equal buffers too") {
  two([](const Group& group, int rank) {
    Normed net;
    DDP ddp(net, group);
    sum(net.both(own_batch(rank), ones({8, 3}))).backward();
    check_equal_buffers(ddp, group);
    CHECK(same_everywhere(net.fc.weight.grad(), group));
  });
}

TEST_CASE("buffers that are not persistent become rank 0's as well") {
  struct Counting : nn::Module {
    nn::Linear fc = add("fc", nn::Linear(3, 2));
    Tensor seen = add_buffer("seen", Tensor::zeros({1}), false);
    Tensor forward(const Tensor& x) override { return fc(x); }
  };
  two([](const Group& group, int rank) {
    Counting net;
    net.seen.copy_(full({1}, 10. + rank));
    DDP ddp(net, group);
    CHECK(net.seen.to_vector<float>() == std::vector<float>{10});
    net.seen.copy_(full({1}, 20. + rank));
    sum(ddp(own_batch(rank))).backward();
    CHECK(net.seen.to_vector<float>() == std::vector<float>{20});
  });
}

TEST_CASE("forwards of two tensors run the wrapper's hooks where they are called by its name") {
  two([](const Group& group, int rank) {
    Normed net;
    DDP ddp(net, group);
    ddp.call(&Normed::both, own_batch(rank), ones({8, 3}));
    ddp.eval();
    ddp.call(&Normed::both, ones({1, 3}), ones({1, 3}));
    check_equal_buffers(ddp, group);
  });
  const std::string message = failure([](const Group& group, int rank) {
    Normed net;
    DDP ddp(net, group, {.buckets = {}, .broadcast_buffers = false});
    for (int k = 0; k < 2; ++k) {
      const Tensor y = ddp.call(&Normed::both, own_batch(rank), ones({8, 3}));
      if (rank == 0 || k == 1) sum(y).backward();
    }
  });
  CAPTURE(message);
  CHECK(message.find("forwards without a backward: 1") != std::string::npos);
}

TEST_CASE("a buffer that nobody writes keeps its version") {
  struct Masked : nn::Module {
    nn::Linear fc = add("fc", nn::Linear(3, 3));
    nn::BatchNorm1d norm = add("norm", nn::BatchNorm1d(3));
    Tensor keep = add_buffer("keep", gt(ones({3}), 0.0));
    Tensor forward(const Tensor& x) override {
      const Tensor y = norm(fc(x));
      return where(keep, y, y * 0.5);
    }
  };
  two([](const Group& group, int) {
    Masked model;
    DDP ddp(model, group);
    const std::uint64_t before = model.keep.storage()->version();
    // Two forwards before one backward: `where` has saved the mask.
    for (int k = 0; k < 2; ++k) (loss(ddp, 1) + loss(ddp, 2)).backward();
    CHECK(model.keep.storage()->version() == before);
  });
}

TEST_CASE("what ranks wrote into buffers is rank 0's after a step, or when asked for") {
  struct Scaled : nn::Module {
    Tensor factor = add_buffer("factor", ones({1}));
    Tensor other = add_buffer("other", ones({2}, DType::i64));
    nn::Linear fc = add("fc", nn::Linear(3, 2));
    Tensor forward(const Tensor& x) override { return fc(x) * factor; }
  };
  two([](const Group& group, int rank) {
    Scaled model;
    DDP ddp(model, group);
    fill_(model.factor, rank + 5.0);
    ddp.sync_buffers();
    CHECK(model.factor.item<double>() == 5);
    if (rank == 1) fill_(model.factor, 9);  // one alone
    loss(ddp, 1).backward();
    CHECK(model.factor.item<double>() == 5);
    // In evaluation nobody needs the others.
    ddp.eval();
    fill_(model.factor, rank + 5.0);
    const std::uint64_t before = group.sequence();
    ddp(ones({1, 3}));
    CHECK(model.factor.item<double>() == rank + 5.0);
    CHECK(group.sequence() == before);
  });
}

TEST_CASE("without broadcast_buffers each rank keeps its own") {
  two([](const Group& group, int rank) {
    Normed net;
    DDP ddp(net, group, {.broadcast_buffers = false});
    sum(ddp(own_batch(rank))).backward();
    CHECK_FALSE(same_everywhere(net.norm.running_mean, group));
    CHECK(net.norm.num_batches_tracked.item<std::int64_t>() == 1);
  });
}

TEST_CASE("forwards without synchronisation need not be as many on all ranks") {
  two([](const Group& group, int rank) {
    Normed net;
    DDP ddp(net, group);
    for (int step = 0; step < 2; ++step) {
      {
        const auto guard = ddp.no_sync();
        for (int k = 0; k < 2 + rank; ++k) sum(ddp(own_batch(rank + k))).backward();
      }
      sum(ddp(own_batch(rank))).backward();
      check_equal_buffers(ddp, group);
    }
  });
}

TEST_CASE("in eval() all ranks have the saved file's outputs, bit by bit") {
  const Folder folder;
  const auto path = folder.path / "model.safetensors";
  ranks(3, [&](const Group& group, int rank) {
    Normed net;
    DDP ddp(net, group);
    nn::SGD optimizer(ddp.parameters(), {.lr = 0.1});
    for (int k = 0; k < 5; ++k) {
      optimizer.zero_grad();
      const Tensor y = ddp(own_batch(rank + 3 * k));
      sum(y * y).backward();
      optimizer.step();
    }
    ddp.eval();
    const NoGrad guard;
    const Tensor x = own_batch(77);
    const auto mine = ddp(x).to_vector<float>();
    if (rank == 0) nn::save_model(path, ddp);
    group.barrier().wait();
    Normed fresh;
    manual_seed(static_cast<std::uint64_t>(rank));
    fill_(fresh.norm.running_mean, 5);
    nn::load_model(path, fresh);
    fresh.eval();
    CHECK(fresh(x).to_vector<float>() == mine);
    CHECK(same_everywhere(ddp(x).detach(), group));
    const auto mean = fresh.norm.running_mean.to_vector<float>();
    CHECK(mean == net.norm.running_mean.to_vector<float>());
    CHECK(mean != std::vector<float>{0, 0, 0});
  });
}

TEST_CASE("a rank may look at outputs alone, under NoGrad") {
  two([](const Group& group, int rank) {
    Normed net;
    DDP ddp(net, group);
    sum(ddp(own_batch(rank))).backward();
    if (rank == 1) {
      const NoGrad guard;
      ddp(own_batch(5));
    }
    ddp.zero_grad();
    CHECK_NOTHROW(sum(ddp(own_batch(rank))).backward());
    check_equal_buffers(ddp, group);
  });
}
