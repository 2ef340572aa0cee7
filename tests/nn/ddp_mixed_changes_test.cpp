// SPDX-License-Identifier: Apache-2.0
// Mixed precision of models that change, and of segments that are computed again in backward.
#include <peal/autograd/grad_slot.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/parallel/join.h>
#include <peal/nn/parallel/sync_batch_norm.h>

#include <cmath>
#include <memory>
#include <vector>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

struct NetWithHead : nn::Module {
  nn::Linear body = add("body", nn::Linear(3, 3)), head = add("head", nn::Linear(3, 2));
  Tensor forward(const Tensor& x) override { return child("head")(body(x)); }
  Tensor twice(const Tensor& x) { return forward(x) + forward(x); }
};

Tensor square_loss(const Tensor& y) {
  const Tensor wide = cast(y, DType::f32);
  return sum(wide * wide);
}

const Tensor& x_of(int rank) {
  static const Tensor all[] = {full({2, 3}, 1.), full({2, 3}, 2.), full({2, 3}, -1.)};
  return all[rank];
}

void check_all_equal(const nn::Module& model, const Group& group) {
  for (const auto& [name, parameter] : model.named_parameters()) {
    CAPTURE(name);
    CHECK(same_everywhere(parameter, group));
    REQUIRE(parameter.grad().defined());
    CHECK(same_everywhere(parameter.grad(), group));
  }
}

}  // namespace

TEST_CASE("gradients that go to one owner each, and would need a hook for their reduce_dtype") {
  two([](const Group& group, int) {
    const nn::DDPOptions options{.mixed_precision = {.reduce_dtype = DType::f32},
                                 .owner_of = [](const Tensor&) { return 0; }};
    NetWithHead wide;
    wide.to(DType::f64);
    CHECK_THROWS_WITH(DDP(wide, group, options),
                      doctest::Contains("reduce_dtype makes a communication hook"));
    NetWithHead net;
    DDP ddp(net, group, options);
    square_loss(ddp(x_of(0))).backward();
    net.add_parameter("extra", ones({2}, DType::f64));
    CHECK_THROWS_WITH(
        square_loss(ddp(x_of(0))).backward(),
        doctest::Contains("the gradient of extra is f64, for which mixed_precision has a hook"));
    group.barrier().wait();  // and the group goes on
  });
}

TEST_CASE("a part that joins is rounded, through forward and through a call by name") {
  for (const bool kept : {false, true}) {
    for (const bool by_name : {false, true}) {
      for (const bool thawed : {false, true}) {
        two([&](const Group& group, int rank) {
          NetWithHead net;
          if (thawed) net.requires_grad_("head", false);
          DDP ddp(
              net, group,
              {.mixed_precision = {.param_dtype = DType::bf16, .keep_low_precision_grads = kept}});
          for (int k = 0; k < 3; ++k) {
            if (k == 1) {
              if (thawed) {
                net.requires_grad_("head", true);
              } else {
                net.replace_child("head", nn::Linear(3, 2));
              }
            }
            ddp.zero_grad();
            const Tensor y = by_name ? ddp.call(&NetWithHead::twice, x_of(rank)) : ddp(x_of(rank));
            CHECK(y.dtype() == DType::bf16);
            square_loss(y).backward();
            if (k > 0) check_all_equal(net, group);
          }
        });
      }
    }
  }
}

TEST_CASE("ranks without a batch keep gradients of parts that join in the type of the others'") {
  two([](const Group& group, int rank) {
    NetWithHead net;
    DDP ddp(net, group,
            {.mixed_precision = {.param_dtype = DType::bf16, .keep_low_precision_grads = true}});
    nn::Join join(ddp);
    for (int turn = 0; turn < 3; ++turn) {
      REQUIRE(join.next(rank == 0 || turn == 0));
      if (turn == 1) net.replace_child("head", nn::Linear(3, 2));
      ddp.zero_grad();
      if (join.active()) {
        square_loss(ddp(x_of(rank))).backward();
      } else {
        CHECK(join.follow());
      }
      check_all_equal(net, group);
      CHECK(net.child("head").parameters()[0].grad().dtype() == DType::bf16);
    }
  });
}

TEST_CASE("hooks after accumulation stay where gradients are kept in fewer bits, and afterwards") {
  two([](const Group& group, int rank) {
    NetWithHead net;
    const Tensor parameter = net.parameters()[0];
    GradSlot& slot = parameter.grad_slot();
    int after = 0;
    slot.add_hook([&](const Tensor&) { ++after; });
    {
      DDP ddp(net, group,
              {.mixed_precision = {.param_dtype = DType::bf16, .keep_low_precision_grads = true}});
      square_loss(ddp(x_of(rank))).backward();
      CHECK(parameter.grad().dtype() == DType::bf16);
    }
    CHECK(after == 1);
    CHECK(&parameter.grad_slot() == &slot);
    CHECK(parameter.grad().dtype() == DType::f32);
    net.zero_grad();
    square_loss(net(x_of(rank))).backward();
    CHECK(after == 2);
  });
}

TEST_CASE("a user's hook on a parameter that is thawed after the wrap stays on it") {
  two([](const Group& group, int rank) {
    NetWithHead net;
    net.requires_grad_("head", false);
    int calls = 0;
    {
      DDP ddp(net, group,
              {.mixed_precision = {.param_dtype = DType::bf16, .keep_low_precision_grads = true}});
      square_loss(ddp(x_of(rank))).backward();
      net.requires_grad_("head", true);
      ddp.zero_grad();
      square_loss(ddp(x_of(rank))).backward();
      net.head.weight.grad_slot().add_hook([&](const Tensor&) { ++calls; });
      net.requires_grad_("head", false);
      ddp.zero_grad();
      square_loss(ddp(x_of(rank))).backward();
      CHECK(calls == 0);
      net.requires_grad_("head", true);
      ddp.zero_grad();
      square_loss(ddp(x_of(rank))).backward();
      CHECK(calls == 1);
    }
  });
}

TEST_CASE("a wrapper with kept types may go when another has taken a part that had left it") {
  two([](const Group& group, int rank) {
    NetWithHead net;
    const nn::DDPOptions options{
        .mixed_precision = {.param_dtype = DType::bf16, .keep_low_precision_grads = true}};
    std::unique_ptr<DDP> whole = std::make_unique<DDP>(net, group, options);
    square_loss((*whole)(x_of(rank))).backward();
    net.requires_grad_("head", false);
    whole->zero_grad();
    square_loss((*whole)(x_of(rank))).backward();  // head leaves the plan
    net.requires_grad_("head", true);
    nn::Linear head = net.head;
    DDP part(head, group, options);
    whole.reset();  // no terminate(), and the part's gradients stay as they are
    CHECK(head.weight.grad_slot().dtype() == DType::bf16);
    part.zero_grad();
    square_loss(part(x_of(rank))).backward();
    check_all_equal(head, group);
  });
}

TEST_CASE("a segment that is computed again in backward is rounded as it was in forward") {
  struct Again : nn::Module {
    nn::Linear in = add("in", nn::Linear(3, 3)), out = add("out", nn::Linear(3, 2));
    std::shared_ptr<DDP> wrapper;
    bool recomputes = false;
    Tensor forward(const Tensor& x) override {
      if (!recomputes) return out(in(x));
      Tensor h;
      {
        const NoGrad guard;
        h = in(x);
      }
      return out(record("again", h, {x}, [this, x = save(x)](const Tensor& g) {
        const Tensor again = x().detach().clone();
        again.set_requires_grad();
        Tensor made;
        {
          const GradMode recorded(true);
          const auto scope = wrapper->rounded();
          made = in(again);
        }
        made.backward(g);
        return again.grad();
      }));
    }
  };
  two([](const Group& group, int rank) {
    std::vector<std::vector<float>> gradients[2];
    for (const bool recomputes : {false, true}) {
      Again net;
      make_whole(net);
      net.recomputes = recomputes;
      const auto ddp = std::make_shared<DDP>(
          net, group, nn::DDPOptions{.mixed_precision = {.param_dtype = DType::bf16}});
      const_cast<Again*>(ddp->as<Again>())->wrapper = ddp;
      const Tensor x = x_of(rank).clone();
      x.set_requires_grad();  // the segment is reached by way of it
      square_loss((*ddp)(x)).backward();
      for (const Tensor& p : net.parameters()) {
        REQUIRE(p.grad().defined());
        gradients[recomputes ? 1 : 0].push_back(p.grad().to_vector<float>());
      }
      const_cast<Again*>(ddp->as<Again>())->wrapper.reset();
    }
    CHECK(gradients[0] == gradients[1]);
  });
  // One that holds on to it in its own backward is told.
  CHECK_THROWS_WITH(two([](const Group& group, int rank) {
                      NetWithHead net;
                      DDP ddp(net, group, {.mixed_precision = {.param_dtype = DType::bf16}});
                      const Tensor y = ddp(x_of(rank));
                      const auto scope = ddp.rounded();
                      square_loss(y).backward();
                    }),
                    doctest::Contains("let rounded() go before it"));
}

TEST_CASE("gradients of f64 that join a model travel in f32 where reduce_dtype says so") {
  struct Grows : nn::Module {
    Tensor w = add_parameter("w", ones({4}));
    std::shared_ptr<Tensor> wide = std::make_shared<Tensor>();
    Tensor forward(const Tensor& x) override {
      const Tensor y = sum(x * w);
      return wide->defined() ? cast(y, DType::f64) + sum(*wide * (1 + std::exp2(-40))) : y;
    }
    void grow() { *wide = add_parameter("wide", ones({4}, DType::f64)); }
  };
  const nn::DDPOptions options{.mixed_precision = {.reduce_dtype = DType::f32}};
  two([&](const Group& group, int rank) {
    Grows net;
    DDP ddp(net, group, options);
    for (int step = 0; step < 4; ++step) {
      if (step == 2) net.grow();
      ddp.zero_grad();
      ddp(full({4}, rank + 1.)).backward();
      CHECK(net.w.grad().to_vector<float>() == std::vector<float>(4, 1.5F));
      if (step >= 2) CHECK(net.wide->grad().to_vector<double>() == std::vector<double>(4, 1));
    }
    CHECK_THROWS_WITH(ddp.register_comm_hook(nn::noop_hook()),
                      doctest::Contains("has a hook already"));
  });
  two([&](const Group& group, int) {  // beside a hook of the user's that cannot be
    Grows net;
    DDP ddp(net, group, options);
    ddp.register_comm_hook(nn::average_gradients(group));
    net.grow();
    CHECK_THROWS_WITH(ddp(full({4}, 1.)).backward(), doctest::Contains("of wide is f64"));
  });
}

TEST_CASE(
    "scopes of rounded parameters may end in any order, and begin where nothing is recorded") {
  two([](const Group& group, int rank) {
    NetWithHead net, whole;
    make_whole(net);
    make_whole(whole);
    const nn::DDPOptions options{.mixed_precision = {.param_dtype = DType::bf16}};
    DDP ddp(net, group, options), plain(whole, group, options);
    const auto dtype = [&] { return net.parameters()[0].dtype(); };
    auto first = ddp.rounded(), second = ddp.rounded();
    first.reset();
    CHECK(dtype() == DType::bf16);
    first = ddp.rounded();
    second.reset();
    CHECK(dtype() == DType::bf16);
    first.reset();
    CHECK(dtype() == DType::f32);
    Tensor y;
    {
      std::shared_ptr<void> outer;
      {
        const NoGrad guard;
        outer = ddp.rounded();
      }
      y = ddp(x_of(rank));
    }
    square_loss(y).backward();
    square_loss(plain(x_of(rank))).backward();
    const auto mine = net.parameters(), theirs = whole.parameters();
    for (std::size_t i = 0; i < mine.size(); ++i) {
      REQUIRE(mine[i].grad().defined());
      CHECK(mine[i].grad().to_vector<float>() == theirs[i].grad().to_vector<float>());
    }
  });
}

TEST_CASE("synchronised statistics in bf16 are the same bits on all ranks, and are not sent") {
  ranks(3, [](const Group& group, int rank) {
    std::uint64_t calls[2] = {};  // of a step, without and with buffers that are made equal
    for (const bool broadcast : {false, true}) {
      manual_seed(1);
      nn::Sequential net(nn::Linear(3, 4), nn::BatchNorm1d(4), nn::Linear(4, 2));
      nn::convert_sync_batchnorm(net, group);
      DDP ddp(net, group,
              {.broadcast_buffers = broadcast,
               .mixed_precision = {.param_dtype = DType::bf16, .buffer_dtype = DType::bf16}});
      for (int k = 0; k < 3; ++k) {  // the second learns the order of buckets
        const std::uint64_t before = group.sequence();
        ddp.zero_grad();
        manual_seed(static_cast<std::uint64_t>(7 * rank + k + 1));
        square_loss(ddp(randn({4, 3}))).backward();
        calls[broadcast ? 1 : 0] = group.sequence() - before;
      }
      for (const auto& [name, buffer] : net.named_buffers()) {
        CAPTURE(name);
        CHECK(same_everywhere(buffer, group));
        if (name != "1.running_mean") continue;
        CHECK(buffer.dtype() == DType::bf16);
        CHECK(cast(buffer, DType::f32).to_vector<float>() != std::vector<float>(4, 0));
      }
    }
    CHECK(calls[1] == calls[0] + 1);  // which of them were written, and none was
  });
}
