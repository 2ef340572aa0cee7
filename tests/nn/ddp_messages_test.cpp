// SPDX-License-Identifier: Apache-2.0
// What people are told when ranks do not do the same: on every rank, long before the deadline, who
// and where, and what to do. `nn_ddp_options -tc='told:*'` prints the messages.
#include <peal/nn/layers/layers.h>
#include <peal/nn/parallel/local_sgd.h>
#include <peal/nn/parallel/power_sgd.h>
#include <peal/nn/parallel/sync_batch_norm.h>

#include <mutex>
#include <string>
#include <vector>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

// What each rank's Error says; fails the test where a rank has none. The deadline's message would
// be another.
std::vector<std::string> told(int world, const std::function<void(const Group&, int rank)>& f) {
  std::mutex mutex;
  std::vector<std::string> texts(static_cast<std::size_t>(world));
  CHECK_THROWS(ranks(world, [&](const Group& group, int rank) {
    try {
      f(group, rank);
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      texts[static_cast<std::size_t>(rank)] = error.what();
      throw;
    }
  }));
  std::string all;
  for (int rank = 0; rank < world; ++rank) {
    all += concat("\nrank ", rank, ": ", texts[static_cast<std::size_t>(rank)]);
  }
  MESSAGE(all);
  return texts;
}

void check_all_have(const std::vector<std::string>& texts, const std::vector<std::string>& words) {
  for (const std::string& text : texts) {
    CAPTURE(text);
    for (const std::string& word : words) {
      CAPTURE(word);
      CHECK(text.find(word) != std::string::npos);
    }
  }
}

// Of two branches, of which one is normalised.
struct Choice : nn::Module {
  nn::Linear fc = add("fc", nn::Linear(3, 3));
  nn::BatchNorm1d norm = add("norm", nn::BatchNorm1d(3));
  Tensor pick(const Tensor& x, bool normalise) { return normalise ? norm(fc(x)) : fc(x); }
};

}  // namespace

TEST_CASE("told: a parameter that one rank of three does not use") {
  const auto texts = told(3, [](const Group& group, int rank) {
    struct Two : nn::Module {
      nn::Linear fc1 = add("fc1", nn::Linear(3, 2)), fc2 = add("fc2", nn::Linear(3, 2));
      Tensor pick(const Tensor& x, bool both) { return both ? fc1(x) + fc2(x) : fc1(x); }
    } net;
    DDP ddp(net, group);
    const Tensor y = ddp.call(&Two::pick, ones({2, 3}), rank != 1);
    sum(y).backward();
  });
  check_all_have(texts, {"[ddp] step 1: rank 1: no gradient came for fc2.weight, fc2.bias",
                         "set find_unused_parameters", "rank       0 1 2", "fc2.weight . x .",
                         "fc2.bias   . x ."});
}

TEST_CASE("told: another model on one rank") {
  const auto texts = told(3, [](const Group& group, int rank) {
    DDP ddp(nn::mlp({3, rank == 2 ? 5 : 4, 2}), group);
  });
  check_all_have(texts, {"'parameter 1.weight f32 [4, 3]' on rank 0 and 'parameter 1.weight f32 "
                         "[5, 3]' on rank 2",
                         "build the same model with the same options on every rank"});
}

TEST_CASE("told: synchronised batch norm that some ranks call, where models choose their parts") {
  for (const bool in_forward : {true, false}) {
    const auto texts = told(3, [&](const Group& group, int rank) {
      Choice net;
      nn::convert_sync_batchnorm(net, group);
      DDP ddp(net, group, {.find_unused_parameters = true});
      const bool normalise = in_forward ? rank != 1 : true;
      const Tensor y = ddp.call(&Choice::pick, randn({4, 3}), normalise);
      // In backward: rank 1 has a loss of which the layer is no part.
      const Tensor of = in_forward || rank != 1 ? y : net.fc(randn({4, 3}));
      sum(of * of).backward();
    });
    check_all_have(
        texts, {" is in ", "but rank ", "step 1, ",
                in_forward ? "which buffers were written" : "forwards without a backward: 1, when",
                in_forward ? "SyncBatchNorm norm, forward" : "before SyncBatchNorm norm, backward",
                "a batch without samples ([0, C, ...])", "find_unused_parameters allows"});
  }
}

TEST_CASE("told: a rank with a batch less, and no join") {
  const auto texts = told(3, [](const Group& group, int rank) {
    Mlp net;
    DDP ddp(net, group);
    for (int batch = 0; batch < (rank == 2 ? 2 : 3); ++batch) loss(ddp, 1).backward();
    group.all_reduce(Tensor::zeros({1}), comm::ReduceOp::sum, "loss of the epoch").wait();
  });
  check_all_have(texts, {"step 3, bucket 0: 3.", "loss of the epoch", "rank 2"});
}

TEST_CASE("told: a rank with a batch less that goes home") {
  std::mutex mutex;
  std::vector<std::string> texts;
  CHECK_THROWS(ranks(3, [&](const Group& group, int rank) {
    Mlp net;
    DDP ddp(net, group);
    try {
      for (int batch = 0; batch < (rank == 2 ? 2 : 3); ++batch) loss(ddp, 1).backward();
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      texts.push_back(error.what());
      throw;
    }
  }));
  REQUIRE(texts.size() == 2);
  for (const std::string& text : texts) MESSAGE(text);
  check_all_have(texts, {"rank 2", "step 3, bucket 0: 3."});
}

TEST_CASE("told: what averages parameters or gradients now and then, with other options") {
  const auto averager = told(3, [](const Group& group, int rank) {
    Mlp net;
    nn::PeriodicModelAverager averager(group, {.period = rank == 2 ? 2 : 4, .warmup_steps = 9});
    averager.average_parameters(net.parameters());  // a step that averages nothing
  });
  check_all_have(averager, {"[ddp] PeriodicModelAverager is 'period 4' on rank 0 and 'period 2' on "
                            "rank 2",
                            "on every rank"});
  const auto loaded = told(2, [](const Group& group, int rank) {
    Mlp net;
    nn::PeriodicModelAverager averager(group), ahead(group);
    for (int k = 0; k < 3; ++k) ahead.average_parameters(net.parameters());
    averager.load_state_dict(rank == 0 ? ahead.state_dict() : averager.state_dict());
    averager.average_parameters(net.parameters());
  });
  check_all_have(loaded, {"'step 3' on rank 0 and 'step 0' on rank 1"});
  const auto local = told(2, [](const Group& group, int rank) {
    Mlp net;
    DDP ddp(net, group);
    ddp.register_comm_hook(nn::post_localSGD_hook(
        nn::PostLocalSGDState(group, {}, {.post_local_gradient_allreduce = rank == 0})));
    loss(ddp, 1).backward();
  });
  check_all_have(local, {"'post_local_gradient_allreduce true' on rank 0"});
  const auto power = told(2, [](const Group& group, int rank) {
    Mlp net;
    DDP ddp(net, group);
    ddp.register_comm_hook(nn::PowerSGD(group, {.warm_start = rank == 0}).hook());
    loss(ddp, 1).backward();
  });
  check_all_have(
      power, {"[ddp] PowerSGD is 'warm_start true' on rank 0 and 'warm_start false' on rank 1"});
}
