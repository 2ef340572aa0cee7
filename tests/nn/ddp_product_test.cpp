// SPDX-License-Identifier: Apache-2.0
// Every option of DDP with every other, and what sums are divided by: what two ranks have after
// five steps is what one process has that computes both ranks' gradients and does to them what the
// options say, bit by bit (PowerSGD, which is simulated in f64, nearly; and three ranks, whose sums
// may be rounded in another order).
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/compress_hooks.h>
#include <peal/nn/parallel/join.h>
#include <peal/nn/parallel/local_sgd.h>
#include <peal/nn/parallel/power_sgd.h>

#include <cmath>
#include <optional>
#include <vector>

#include "ddp_product_reference.h"

using namespace peal;
using namespace peal::testing;
using namespace peal::testing::product;

namespace {

std::vector<double> numbers(const Tensor& tensor) {
  return cast(tensor.detach(), DType::f64).to_vector<double>();
}

// `own`: a group of this rank alone.
void run(const Case& c, const Group& group, const Group& own, int rank) {
  CAPTURE(text_of(c));
  manual_seed(7);
  Net net(c);
  DDP ddp(net, group,
          {.buckets = nn::BucketCaps{.first_bytes = 100},
           .broadcast_buffers = c.buffers,
           .find_unused_parameters = c.find_unused,
           .static_graph = c.static_graph,
           // PowerSGD's first factors are of one plan.
           .order = c.hook == Hook::power ? start_order(net) : std::vector<std::string>(),
           .mixed_precision = c.low ? in_bf16 : nn::MixedPrecision()});
  Reference reference(c, net, ddp.reducer().buckets());
  std::optional<nn::PowerSGD> power;
  switch (c.hook) {
    case Hook::average:
      break;
    case Hook::fp16:
      ddp.register_comm_hook(nn::fp16_compress_hook(group));
      break;
    case Hook::bf16:
      ddp.register_comm_hook(nn::bf16_compress_hook(group));
      break;
    case Hook::int8:
      ddp.register_comm_hook(nn::int8_compress_hook(group));
      break;
    case Hook::noop:
      ddp.register_comm_hook(nn::noop_hook());
      break;
    case Hook::local:
      // An average over a part, this rank, is none over samples or those that have a batch.
      ddp.register_comm_hook(nn::post_localSGD_hook(
          {group, c.over == Over::ranks ? own : Group(), {.start_localSGD_iter = local_from}}));
      break;
    case Hook::power: {
      power.emplace(group, power_options);
      NamedTensors state = power->state_dict();
      for (auto& each : reference.first_factors(net)) state.push_back(std::move(each));
      power->load_state_dict(state);
      ddp.register_comm_hook(power->hook());
    }
  }
  nn::SGD optimizer(ddp.parameters(), {.lr = 0.0625});
  std::optional<nn::Join> join;
  if (c.join) {
    join.emplace(ddp, nn::JoinOptions{.divide_by_initial_world_size = c.over != Over::actives});
  }
  std::vector<std::vector<nn::Bucket>> plans;
  for (int turn = 0; turn < turns; ++turn) {
    const bool mine = active(c, rank, turn);
    if (join) REQUIRE(join->next(mine));
    optimizer.zero_grad();
    *net.takes_extra = uses_extra(c, rank, turn);
    for (int micro = 0; micro < backwards(c); ++micro) {
      const auto backward = [&] {
        const Tensor loss = loss_of(ddp, batch(rank, turn, micro));
        if (c.over == Over::samples) {
          ddp.backward(loss, samples_of(rank, turn, micro));
        } else {
          loss.backward();
        }
      };
      if (!mine) {
        if (communicates(c, micro)) REQUIRE(join->follow());
      } else if (communicates(c, micro)) {
        backward();
      } else {
        const auto guard = ddp.no_sync();
        backward();
      }
      if (communicates(c, micro)) plans.push_back(ddp.reducer().buckets());
    }
    optimizer.step();
    reference.turn(turn, plans);
  }
  if (join) REQUIRE_FALSE(join->next(false));
  const bool learnt = c.hook != Hook::power && (c.static_graph || !c.find_unused);
  // Rounding is the first thing a step does, and the last that backward comes to, so that there the
  // order of registration is the order of arrival, where all parameters are used.
  if (!c.low) CHECK((plans.front() != plans.back()) == learnt);

  const double tolerance = c.hook == Hook::power ? 1e-4 : (c.world == 2 ? 0 : 1e-5);
  std::string all;  // of what is to be the same on both ranks
  const auto compare = [&](const NamedTensors& mine, const NamedTensors& expected) {
    REQUIRE(mine.size() == expected.size());
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const auto& [name, tensor] = mine[i];
      const auto got = numbers(tensor), want = numbers(expected[i].second);
      double off = 0;
      for (std::size_t k = 0; k < got.size(); ++k) {
        // A NaN is off, too.
        off = std::abs(got[k] - want[k]) <= tolerance ? off : std::abs(got[k] - want[k]) + 1;
      }
      CAPTURE(name);
      REQUIRE(off == 0);
      const bool apart = c.hook == Hook::noop || c.hook == Hook::local;
      if (apart || (!c.buffers && name == "shift")) continue;
      all.append(static_cast<const char*>(tensor.raw()), tensor.view().bytes());
    }
  };
  compare(net.named_parameters(), reference.model(rank).named_parameters());
  compare(net.named_buffers(), reference.model(rank).named_buffers());
  const auto texts = group.all_gather_object(all);
  for (const std::string& text : texts) REQUIRE(text == texts[0]);
}

// Of each option with each other.
void run_all(Micro micro) {
  std::atomic<int> count{0};
  two([&](const Group& group, int rank) {
    const Group own = group.split(rank);
    for (const Hook hook : hooks) {
      for (unsigned bits = 0; bits < 64; ++bits) {
        const auto on = [&](unsigned bit) { return (bits >> bit & 1) != 0; };
        for (const Over over : {Over::ranks, Over::actives, Over::samples}) {
          // Buffers, types and ties are nothing to a divisor: all of them or none; and Join, which
          // has turns with all ranks, is always there.
          if (over != Over::ranks && (on(2) != on(4) || on(4) != on(5) || !on(3))) continue;
          if (over == Over::samples && micro == Micro::all) continue;  // an error
          run({micro, over, hook, on(0), on(1), on(2), on(3), on(4), on(5)}, group, own, rank);
          if (rank == 0) ++count;
        }
      }
    }
  });
  CHECK(count == 7 * (64 + 8 + (micro == Micro::all ? 0 : 8)));
  MESSAGE(count.load(), " combinations of options");
}

}  // namespace

TEST_CASE("every option with every other: a backward a step") { run_all(Micro::one); }

TEST_CASE("every option with every other: three backwards, of which the last communicates") {
  run_all(Micro::no_sync);
}

TEST_CASE("every option with every other: three backwards, of which each communicates") {
  run_all(Micro::all);
}

TEST_CASE("every option with every other: three ranks, within rounding") {
  std::atomic<int> count{0};
  ranks(3, [&](const Group& group, int rank) {
    for (const Micro micro : {Micro::one, Micro::no_sync, Micro::all}) {
      for (unsigned bits = 0; bits < 64; ++bits) {
        const auto on = [&](unsigned bit) { return (bits >> bit & 1) != 0; };
        run({micro, Over::ranks, Hook::average, on(0), on(1), on(2), on(3), on(4), on(5), 3}, group,
            {}, rank);
        if (rank == 0) ++count;
      }
    }
  });
  CHECK(count == 3 * 64);
}

TEST_CASE(
    "mixed precision with accumulation, unused parameters, a static graph, buffers and Join") {
  std::atomic<int> count{0};
  two([&](const Group& group, int rank) {
    for (const Micro micro : {Micro::one, Micro::no_sync, Micro::all}) {
      for (unsigned bits = 0; bits < 16; ++bits) {
        const auto on = [&](unsigned bit) { return (bits >> bit & 1) != 0; };
        run({micro, Over::ranks, Hook::average, on(0), on(1), on(2), on(3), false, false, 2, true},
            group, {}, rank);
        if (rank == 0) ++count;
      }
    }
  });
  CHECK(count == 3 * 16);
}
