// SPDX-License-Identifier: Apache-2.0
// What one rank alone finds wrong before or while plans are made, all ranks hear: nobody waits for
// it until the deadline.
#include <peal/nn/layers/layers.h>

#include <barrier>

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
std::vector<std::string> told_by(const std::function<void(const Group&, int rank)>& f) {
  std::vector<std::string> told(2);
  std::barrier both(2);  // none hears it by the other's leaving
  const auto rank = [&](const Group& group) {
    manual_seed(1);
    try {
      f(group, group.rank());
    } catch (const Error& error) {
      told[static_cast<std::size_t>(group.rank())] = error.what();
    }
    both.arrive_and_wait();
  };
  try {
    comm::run_ranks(2, {.deadline = std::chrono::seconds(10)}, rank);
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
  check_told(wrap([](nn::DDPOptions& o) { o.ignored = {"nobody"}; }), "nobody");
  check_told(wrap([](nn::DDPOptions& o) { o.measure_every = -1; }), "measure_every");
  check_told(wrap([](nn::DDPOptions& o) { o.mixed_precision.param_dtype = DType::i32; }),
             "param_dtype");
  check_told(
      wrap([](nn::DDPOptions& o) { o.all_reduce_cost = cost_until(std::make_shared<int>(1), 1); }),
      "no such machine");
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
