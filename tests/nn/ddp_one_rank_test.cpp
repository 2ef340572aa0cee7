// SPDX-License-Identifier: Apache-2.0
// What one rank alone finds wrong, where plans are made and in steps, all ranks hear: nobody waits
// for it until the deadline.
#include <peal/autograd/core/out_of_memory.h>
#include <peal/autograd/grad_slot.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/parallel/fail_everywhere.h>
#include <peal/nn/parallel/join.h>
#include <peal/nn/parallel/power_sgd.h>
#include <peal/nn/parallel/sync_batch_norm.h>

#include <barrier>
#include <cmath>
#include <optional>
#include <thread>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

// A cost that this rank cannot say from its `from`-th plan on; each asks for many.
nn::CollectiveCost cost_until(const std::shared_ptr<int>& plans, int from) {
  return [=](double bytes) {
    PEAL_CHECK(*plans < from, "no such machine");
    return 1e-5 + bytes * 1e-10;
  };
}

// What each rank was told; all of them before the deadline.
std::vector<std::string> told_by(const std::function<void(const Group&, int rank)>& f,
                                 int world = 2) {
  std::vector<std::string> told(static_cast<std::size_t>(world));
  std::barrier all(world);  // none hears it by another's leaving
  const auto rank = [&](const Group& group) {
    manual_seed(1);
    try {
      f(group, group.rank());
    } catch (const Error& error) {
      told[static_cast<std::size_t>(group.rank())] = error.what();
    }
    all.arrive_and_wait();
  };
  try {
    comm::run_ranks(world, {.deadline = std::chrono::seconds(10)}, rank);
  } catch (const Error&) {  // the same once more, where it has ended the group
  }
  return told;
}

void check_told(const std::vector<std::string>& told, std::string_view what) {
  for (const std::string& text : told) {
    CAPTURE(text);
    CHECK(text.find(what) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("options that are wrong on one rank alone") {
  const auto wrap = [](const std::function<void(nn::DDPOptions&)>& set) {
    return told_by([&](const Group& group, int rank) {
      Mlp net;
      nn::DDPOptions options;
      if (rank == 1) set(options);
      DDP ddp(net, group, options);
      group.barrier().wait();
    });
  };
  check_told(wrap([](nn::DDPOptions& o) { o.ignored = {"nobody"}; }),
             "[ddp] the model: rank 1: ignored has nobody, which the model has not");
  check_told(wrap([](nn::DDPOptions& o) { o.measure_every = -1; }), "measure_every");
  check_told(wrap([](nn::DDPOptions& o) { o.mixed_precision.param_dtype = DType::i32; }),
             "param_dtype");
  check_told(
      wrap([](nn::DDPOptions& o) { o.all_reduce_cost = cost_until(std::make_shared<int>(1), 1); }),
      "no such machine");
}

TEST_CASE("a parameter that is another wrapper's, on one rank alone or on all") {
  struct Net : nn::Sequential {
    Net() : nn::Sequential(nn::Linear(3, 4), nn::BatchNorm1d(4)) {}
  };
  const std::vector<nn::MixedPrecision> settings{
      {},
      {.param_dtype = DType::bf16, .buffer_dtype = DType::bf16, .keep_low_precision_grads = true}};
  for (const auto& mixed : settings) {
    for (const bool all : {false, true}) {
      const auto told = told_by([&](const Group& group, int rank) {
        Net net;
        std::optional<DDP> first;
        if (all || rank == 1) first.emplace(net, comm::ProcessGroup::alone());
        const auto check_untouched = [&net] {
          for (const Tensor& p : net.parameters()) CHECK(p.grad_slot().dtype() == DType::f32);
          CHECK(net.get_buffer("1.running_mean").dtype() == DType::f32);
        };
        std::string error;
        try {
          DDP ddp(net, group, {.mixed_precision = mixed});
        } catch (const Error& e) {
          error = e.what();
        }
        check_untouched();
        // The group goes on, and so does the first wrapper.
        first.reset();
        DDP ddp(net, group);
        loss(ddp, rank).backward();
        throw Error(error);
      });
      check_told(told, all ? "[ddp] the model: on all ranks: 0.weight already belongs"
                           : "[ddp] the model: rank 1: 0.weight already belongs to a distributed "
                             "wrapper; destroy that one first");
    }
  }
}

TEST_CASE("what fails on one rank when all have agreed") {
  check_told(told_by([](const Group& group, int rank) {
               Mlp net;
               const Tensor& odd = net.parameters()[2];
               if (rank == 1) {
                 odd.body().slot = std::make_shared<GradSlot>(Shape{1}, DType::f32, Device{});
               }
               DDP ddp(net, group);
               group.barrier().wait();
             }),
             "[ddp] rank 1: the model could not be wrapped: gradient: a place for f32 [1]");
}

TEST_CASE("a plan that one rank alone cannot make") {
  // When the second step begins, and the order of the first is learnt.
  check_told(told_by([](const Group& group, int rank) {
               const auto plans = std::make_shared<int>(0);
               Mlp net;
               DDP ddp(net, group, {.all_reduce_cost = cost_until(plans, 1)});
               loss(ddp, rank).backward();
               if (rank == 1) ++*plans;
               loss(ddp, rank).backward();
             }),
             "rank 1: no plan of buckets can be made: no such machine");
  // When the model has other members.
  check_told(told_by([](const Group& group, int rank) {
               const auto plans = std::make_shared<int>(0);
               Mlp net;
               DDP ddp(net, group, {.all_reduce_cost = cost_until(plans, 1)});
               loss(ddp, rank).backward();
               net.requires_grad_("1", false);
               if (rank == 1) ++*plans;
               loss(ddp, rank).backward();
             }),
             "no such machine");
  // When an order is given.
  check_told(told_by([](const Group& group, int rank) {
               const auto plans = std::make_shared<int>(0);
               Mlp net;
               DDP ddp(net, group, {.all_reduce_cost = cost_until(plans, 1)});
               if (rank == 1) ++*plans;
               ddp.set_order(start_order(net));
               group.barrier().wait();
             }),
             "no such machine");
}

TEST_CASE("a Join that some ranks alone cannot have") {
  const auto told = told_by(
      [](const Group& group, int rank) {
        const Group node = group.split(rank / 2);  // of two ranks and of one
        nn::Sequential net(nn::Linear(3, 4), nn::BatchNorm1d(4), nn::Linear(4, 2));
        nn::convert_sync_batchnorm(net, node);
        DDP ddp(net, group);
        std::string error;
        try {
          nn::Join(ddp).next(true);
        } catch (const Error& e) {
          error = e.what();
        }
        group.barrier().wait();  // the group goes on
        throw Error(error);
      },
      3);
  check_told(told, "[ddp] Join: rank 0: 1 is a SyncBatchNorm over another group");
}

TEST_CASE("a number of samples that is none, or gradients left over, on one rank alone") {
  for (const bool left_over : {false, true}) {
    for (const bool hook : {false, true}) {
      const auto told = told_by([&](const Group& group, int rank) {
        Mlp net;
        DDP ddp(net, group);
        if (hook) ddp.register_comm_hook(nn::PowerSGD(group, {.start_powerSGD_iter = 1}).hook());
        std::string error;
        for (int step = 0; step < 3; ++step) {
          if (!left_over || rank == 0) ddp.zero_grad();
          try {
            ddp.backward(loss(ddp, 1), rank == 1 && !left_over ? std::nan("") : 2.0);
          } catch (const Error& e) {
            error = e.what();
          }
        }
        ddp.zero_grad();  // the group goes on
        ddp.backward(loss(ddp, 1), 2);
        for (const Tensor& p : net.parameters()) CHECK(same_everywhere(p.grad(), group));
        throw Error(error);
      });
      check_told(told, left_over ? "rank 1: 1.weight has a gradient that is of no sum over samples"
                                 : "rank 1: expected a number of samples, 0 or more, got");
    }
  }
}

TEST_CASE("a number of samples that is none, in a run's first backward, on one rank alone") {
  for (const bool accumulates : {false, true}) {
    const auto told = told_by([&](const Group& group, int rank) {
      Mlp net;
      DDP ddp(net, group);
      std::string error;
      try {
        ddp.reducer().set_synchronizing(!accumulates);
        ddp.backward(loss(ddp, 1), rank == 1 ? std::nan("") : 2.0);
      } catch (const Error& e) {
        error = e.what();
      }
      ddp.reducer().set_synchronizing(true);
      ddp.zero_grad();  // the group goes on
      ddp.backward(loss(ddp, 1), 2);
      for (const Tensor& p : net.parameters()) CHECK(same_everywhere(p.grad(), group));
      throw Error(error);
    });
    check_told(told, "rank 1: expected a number of samples, 0 or more, got");
  }
}

TEST_CASE("a number of samples that is none, beside a rank without a batch") {
  check_told(told_by([](const Group& group, int rank) {
               Mlp net;
               DDP ddp(net, group);
               nn::Join join(ddp);
               if (!join.next(rank == 1)) return;
               if (join.active()) {
                 const auto guard = ddp.no_sync();
                 ddp.backward(loss(ddp, 1), std::nan(""));
               } else {
                 join.follow();
               }
             }),
             "rank 1: expected a number of samples, 0 or more, got");
}

TEST_CASE("a backward without samples on top of some that have them, on one rank alone") {
  const auto told = told_by([&](const Group& group, int rank) {
    Mlp net;
    DDP ddp(net, group, {.buckets = apart});
    {
      const auto guard = ddp.no_sync();
      ddp.backward(loss(ddp, 1), 2);
    }
    std::string error;
    try {
      const Tensor value = loss(ddp, 1);
      rank == 1 ? value.backward() : ddp.backward(value, 2);
    } catch (const Error& e) {
      error = e.what();
    }
    ddp.zero_grad();  // the group goes on
    ddp.backward(loss(ddp, 1), 2);
    for (const Tensor& p : net.parameters()) CHECK(same_everywhere(p.grad(), group));
    throw Error(error);
  });
  check_told(told, "rank 1: in step 1 backward(loss, samples) and backward(loss) are not for one");
}

TEST_CASE("a loss over samples that does not go through the model, on one rank alone") {
  for (const bool has_graph : {false, true}) {
    check_told(
        told_by([&](const Group& group, int rank) {
          Mlp net, other;
          DDP ddp(net, group);
          if (rank == 0) return ddp.backward(loss(ddp, 1), 2);
          ddp.backward(has_graph ? loss(other, 1) : full({}, 0.), 0);
        }),
        "rank 1: backward(loss, samples): the loss goes through no parameter of the wrapper");
  }
}

TEST_CASE("a loss over samples that goes through another wrapper, on one rank alone") {
  check_told(told_by([](const Group& group, int rank) {
               Mlp net, other;
               DDP a(net, group), b(other, group);
               a.backward(rank == 1 ? loss(a, 1) + loss(b, 1) : loss(a, 1), 3);
             }),
             "rank 1: backward(loss, samples): the loss goes through another wrapper, too");
}

TEST_CASE("a backward over samples where one rank alone has rounded parameters") {
  check_told(told_by([](const Group& group, int rank) {
               Mlp net;
               DDP ddp(net, group, {.mixed_precision = {.param_dtype = DType::bf16}});
               const Tensor y = ddp(full({2, 3}, 1.));
               const auto scope = rank == 1 ? ddp.rounded() : nullptr;
               ddp.backward(sum(y * y), 2);
             }),
             "rank 1: a backward began where parameters are rounded ones");
}

TEST_CASE("a state of PowerSGD that one rank alone cannot go on with") {
  struct One : nn::Module {
    Tensor w = add_parameter("w", Tensor::zeros({8, 8}));
  };
  check_told(told_by([](const Group& group, int rank) {
               One net;
               DDP ddp(net, group);
               nn::PowerSGD power(group, {.start_powerSGD_iter = 1});
               NamedTensors state{{"iteration", Tensor::scalar(std::int64_t{1}, Device{})}};
               state.emplace_back("w.q", Tensor::zeros({rank == 1 ? 16 : 8}));
               power.load_state_dict(state);
               ddp.register_comm_hook(power.hook());
               sum(net.w).backward();
             }),
             "w has second factors of 8 elements, and the state has 16");
}

TEST_CASE("another rank's words are no OutOfMemory, though memory has run out here since") {
  for (const bool memory_first : {false, true}) {
    const auto told = told_by([&](const Group& group, int rank) {
      try {
        while (rank == 1 && !group.poisoned()) std::this_thread::yield();
        if (rank == 1 || memory_first) throw OutOfMemory("no room");
        fail("no bread");
      } catch (...) {
        try {
          nn::rethrow_everywhere(group, "it failed");
        } catch (const OutOfMemory& error) {
          fail(concat("OutOfMemory ", error.what()));
        }
      }
    });
    const std::string words = memory_first ? "OutOfMemory [ddp] rank 0: it failed: out of memory: "
                                             "no room"
                                           : "[ddp] rank 0: it failed: no bread";
    for (const std::string& each : told) CHECK(each == words);
  }
}
