// SPDX-License-Identifier: Apache-2.0
// Units of FSDP that a step runs otherwise than once each, and alike on all ranks: not at all,
// twice, in several forwards before a backward, in a forward without one, or in another way on one
// rank.
#include <peal/nn/optim/sgd.h>

#include <chrono>

#include "fsdp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

// Two parts, which a forward calls as often as it is told, and a head.
struct TwoParts : nn::Module {
  nn::Linear a = add("a", nn::Linear(3, 3));
  nn::Linear b = add("b", nn::Linear(3, 3));
  nn::Linear head = add("head", nn::Linear(3, 2));
  int times_a = 1, times_b = 1;
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (int k = 0; k < times_a; ++k) y = a(y);
    for (int k = 0; k < times_b; ++k) y = b(y);
    return head(y);
  }
};

}  // namespace

TEST_CASE("ranks that run different units all hear which") {
  for (const bool grads : {false, true}) {
    const auto all = failures(2, [&](const Group& group, int rank) {
      TwoParts model;
      (rank == 0 ? model.times_a : model.times_b) = 0;
      const GradMode mode(grads);
      FSDP fsdp(model, group, {.wrap = nn::wrap_by_name({"a", "b"})});
      fsdp(full({2, 3}, 1.0));
    });
    for (const std::string& message : all) {
      CAPTURE(message);
      CHECK(contains(message, "forward 1, parameters of unit a"));
      CHECK(contains(message, "forward 1, parameters of unit b"));
    }
  }
}

TEST_CASE("a rank that runs a unit three times is told at once, and so are the others") {
  const auto begin = std::chrono::steady_clock::now();
  const auto all = failures(3, [&](const Group& group, int rank) {
    TwoParts model;
    if (rank == 1) model.times_b = 3;
    FSDP fsdp(model, group, {.wrap = nn::wrap_by_name({"a", "b"})});
    sum(fsdp(full({2, 3}, 1.0))).backward();
  });
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
  for (const std::string& message : all) {
    CAPTURE(message);
    CHECK(contains(message, "forward 1, parameters of unit b"));
    CHECK(contains(message, "backward 1, parameters of unit b"));
    CHECK(contains(message, "rank 1"));
  }
}

TEST_CASE("a rank that leaves out a backward is found out in the next forward") {
  const auto all = failures(2, [&](const Group& group, int rank) {
    SmallConv model;
    FSDP fsdp(model, group, {.wrap = nn::wrap_by_name({"fc1"})});
    const Tensor y = sum(fsdp(full({2, 1, 8, 8}, 1.0)));
    if (rank == 0) y.backward();
    fsdp(full({2, 1, 8, 8}, 1.0));
  });
  for (const std::string& message : all) {
    CAPTURE(message);
    CHECK(contains(message, "backward 1, parameters of unit fc1"));
    CHECK(contains(message, "forward 2, parameters of unit fc1"));
  }
}

TEST_CASE("a parameter without a gradient beside others is an Error by name") {
  struct Half : nn::Module {
    nn::Linear a = add("a", nn::Linear(3, 2));
    Tensor unused = add_parameter("unused", full({2}, 1.0));
    Tensor forward(const Tensor& x) override { return a(x); }
  };
  const auto all = failures(2, [&](const Group& group, int) {
    Half model;
    FSDP fsdp(model, group);
    sum(fsdp(full({2, 3}, 1.0))).backward();
  });
  for (const std::string& message : all) {
    CAPTURE(message);
    CHECK(contains(message, "unused of the model got no gradient"));
  }
}

TEST_CASE("a unit that no rank uses is not touched; one that is used twice is whole") {
  two([](const Group& group, int rank) {
    TwoParts model, whole;
    model.to(DType::f64);
    whole.to(DType::f64);
    whole.load_state_dict(model.state_dict());
    for (TwoParts* each : {&model, &whole}) {
      each->times_a = 2;
      each->times_b = 0;
    }
    FSDP fsdp(model, group, {.wrap = nn::wrap_by_type({"Linear"})});
    const auto x = randn({4, 3}, DType::f64);
    sum(fsdp(x.rows(2 * rank, 2 * rank + 2)) * 2).backward();
    sum(whole(x)).backward();
    nn::SGD optimizer(fsdp.local_parameters(), {.lr = 0.1}),
        expected(whole.parameters(), {.lr = 0.1});
    optimizer.step();
    expected.step();
    for (const auto& [name, piece] : fsdp.local_parameters()) {
      CHECK(piece.grad().defined() == !name.starts_with("b."));
    }
    CHECK(difference(fsdp.state_dict(), whole.state_dict()) < 1e-12);
  });
}

TEST_CASE("several forwards before their backwards") {
  two([](const Group& group, int rank) {
    for (const bool reshard : {false, true}) {
      SmallConv model = fresh(make_conv), whole = fresh(make_conv);
      FSDP fsdp(
          model, group,
          {.wrap = nn::wrap_by_type({"Linear"}), .schedule = {.reshard_after_forward = reshard}});
      const Batch one = batch_of(model, 4, 1), other = batch_of(model, 4, 2);
      const auto check = [&] {
        nn::SGD optimizer(fsdp.local_parameters(), {.lr = 0.1});
        nn::SGD expected(whole.parameters(), {.lr = 0.1});
        optimizer.step();
        expected.step();
        CHECK(difference(fsdp.state_dict(), whole.state_dict()) < 1e-12);
        fsdp.zero_grad();
        whole.zero_grad();
      };
      // One backward through both, then one each.
      for (const bool together : {true, false}) {
        const auto backward = [&](nn::Module& net, const Batch& first, const Batch& second) {
          const Tensor a = loss_of(net, first), b = loss_of(net, second);
          if (together) return (a + b).backward();
          a.backward();
          b.backward();
        };
        backward(fsdp, rows_of(one, rank, 2), rows_of(other, rank, 2));
        backward(whole, one, other);
        check();
      }
      // One that no backward follows; then the values have changed.
      loss_of(fsdp, rows_of(one, rank, 2));
      fsdp.load_state_dict(fresh(make_conv).state_dict());
      whole.load_state_dict(fresh(make_conv).state_dict());
      loss_of(fsdp, rows_of(one, rank, 2)).backward();
      loss_of(whole, one).backward();
      check();
    }
  });
}

TEST_CASE("a forward that no backward follows leaves nothing old behind a step") {
  ranks(3, [](const Group& group, int rank) {
    for (const bool reshard : {false, true}) {
      CAPTURE(reshard);
      SmallConv model = fresh(make_conv), whole = fresh(make_conv);
      FSDP fsdp(
          model, group,
          {.wrap = nn::wrap_by_type({"Linear"}), .schedule = {.reshard_after_forward = reshard}});
      nn::SGD optimizer(fsdp.local_parameters(), {.lr = 0.1}),
          expected(whole.parameters(), {.lr = 0.1});
      for (int step = 0; step < 3; ++step) {
        const Batch batch = batch_of(model, 6, step);
        optimizer.zero_grad();
        expected.zero_grad();
        loss_of(fsdp, rows_of(batch, rank, 3)).backward();
        loss_of(whole, batch).backward();
        loss_of(fsdp, rows_of(batch, rank, 3));  // keeps the model's own unit
        optimizer.step();
        expected.step();
        CAPTURE(step);
        if (step != 0) CHECK(difference(fsdp.state_dict(), whole.state_dict()) < 1e-12);
      }
    }
  });
}
