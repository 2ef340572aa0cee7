// SPDX-License-Identifier: Apache-2.0
// Models that change under their wrapper where something else happens too: a step that fails,
// eval(), two wrappers, compression, mixed precision. No gradient stays a rank's own without a
// word.
#include <peal/autograd/grad_slot.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/parallel/join.h>
#include <peal/nn/parallel/power_sgd.h>

#include <optional>
#include <string>
#include <vector>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

// A body and a head, which may be left out.
struct Net : nn::Module {
  nn::Linear body = add("body", nn::Linear(3, 3)), head = add("head", nn::Linear(3, 2));
  std::shared_ptr<bool> with_head = std::make_shared<bool>(true);
  Tensor forward(const Tensor& x) override { return *with_head ? child("head")(body(x)) : body(x); }
  Tensor twice(const Tensor& x) { return forward(x) + forward(x); }
};

nn::Linear filled(float value) {
  nn::Linear linear(3, 2);
  fill_(linear.weight.detach(), value);
  fill_(linear.bias.detach(), value);
  return linear;
}

Tensor loss_of(const Tensor& y) {
  const Tensor wide = cast(y, DType::f32);
  return sum(wide * wide);
}

void check_all_equal(const nn::Module& model, const Group& group, bool gradients) {
  for (const auto& [name, parameter] : model.named_parameters()) {
    CAPTURE(name);
    CHECK(same_everywhere(parameter, group));
    if (!gradients) continue;
    REQUIRE(parameter.grad().defined());
    CHECK(same_everywhere(parameter.grad(), group));
  }
}

}  // namespace

TEST_CASE("parameters that joined in a step that failed become equal after the next") {
  two([](const Group& group, int rank) {
    Net net;
    DDP ddp(net, group);
    loss(ddp, 1).backward();
    net.replace_child("head", filled(static_cast<float>(1 + rank)));
    *net.with_head = rank == 0;
    CHECK_THROWS_WITH(loss_of(ddp(full({2, 3}, 1.))).backward(),
                      doctest::Contains("rank 1: no gradient came for head.weight"));
    *net.with_head = true;
    ddp.zero_grad();
    loss(ddp, 1).backward();
    check_all_equal(net, group, false);
    CHECK(net.child("head").parameters()[0].to_vector<float>()[0] == 1);
  });
}

TEST_CASE("a head that is new or thawed is averaged in eval() as well") {
  for (const bool replaced : {true, false}) {
    two([&](const Group& group, int rank) {
      Net net;
      net.requires_grad_("head", false);
      DDP ddp(net, group);
      loss(ddp, rank + 1).backward();
      net.body.requires_grad_(false);
      if (replaced) {
        net.replace_child("head", filled(1));
      } else {
        net.requires_grad_("head", true);
      }
      ddp.eval();
      for (int k = 0; k < 2; ++k) {
        ddp.zero_grad();
        loss(ddp, rank + 1 + k).backward();
        check_all_equal(net.child("head"), group, true);
      }
    });
  }
}

TEST_CASE("of a thawed head that a step leaves out, an old gradient is none of the step's") {
  const std::string message = failure([](const Group& group, int rank) {
    Net net;
    DDP ddp(net, group);
    loss(ddp, rank + 1).backward();
    net.requires_grad_("head", false);
    loss(ddp, rank + 1).backward();
    net.requires_grad_("head", true);
    *net.with_head = false;
    loss(ddp, rank + 1).backward();
  });
  CHECK(message.find("no gradient came for head.weight, head.bias") != std::string::npos);
  // By when it is thawed: before the forward, or behind it.
  for (const bool late : {false, true}) {
    two([&](const Group& group, int rank) {
      Net net;
      DDP ddp(net, group, {.find_unused_parameters = true});
      loss(ddp, rank + 1).backward();
      net.requires_grad_("head", false);
      loss(ddp, rank + 1).backward();
      const Tensor grad = net.child("head").parameters()[0].grad();
      const Tensor own = full(grad.shape(), rank + 0.5);
      grad.copy_(own);
      *net.with_head = false;
      if (!late) net.requires_grad_("head", true);
      const Tensor y = loss(ddp, rank + 1);
      if (late) net.requires_grad_("head", true);
      y.backward();
      CHECK(net.child("head").parameters()[0].grad().to_vector<float>() == own.to_vector<float>());
    });
  }
}

TEST_CASE("a use of a thawed head under no_sync counts for the step that ends the accumulation") {
  two([](const Group& group, int rank) {
    Net net, alone;
    make_whole(net);
    make_whole(alone);
    DDP ddp(net, group, {.find_unused_parameters = true});
    net.requires_grad_("head", false);
    loss(ddp, 1).backward();
    net.zero_grad();
    net.requires_grad_("head", true);
    {
      const auto guard = ddp.no_sync();
      loss(ddp, rank + 1).backward();
    }
    *net.with_head = false;
    loss(ddp, rank + 2).backward();
    loss(alone, rank + 1).backward();
    *alone.with_head = false;
    loss(alone, rank + 2).backward();
    check_averaged(net, alone, group);
  });
}

TEST_CASE("of a head that is used past the wrapper since it was thawed, the gradient is averaged") {
  two([](const Group& group, int rank) {
    Net net;
    make_whole(net);
    DDP ddp(net, group, {.find_unused_parameters = true});
    net.requires_grad_("head", false);
    *net.with_head = false;
    loss(ddp, 1).backward();
    net.requires_grad_("head", true);
    {
      const auto guard = ddp.no_sync();
      sum(net.child("head")(full({2, 3}, rank + 1.))).backward();
    }
    loss(ddp, rank + 2).backward();
    CHECK(net.child("head").parameters()[0].grad().to_vector<float>() ==
          std::vector<float>(6, 3.F));
    check_all_equal(net, group, true);
  });
}

TEST_CASE("of a head that joins and is left out, a gradient from before the last step stays") {
  for (const bool follows : {false, true}) {  // that step, on one rank
    two([&](const Group& group, int rank) {
      Net net;
      DDP ddp(net, group, {.find_unused_parameters = true});
      nn::Linear head = filled(1);
      sum(head(full({2, 3}, rank + 1.))).backward();
      const std::vector<float> own = head.weight.grad().to_vector<float>();
      nn::Join join(ddp);
      REQUIRE(join.next(rank == 0 || !follows));
      if (join.active()) {
        loss(ddp, rank + 1).backward();
      } else {
        REQUIRE(join.follow());
      }
      REQUIRE(join.next(true));
      net.replace_child("head", head);
      *net.with_head = false;
      loss(ddp, rank + 1).backward();
      CHECK(head.weight.grad().to_vector<float>() == own);
    });
  }
}

TEST_CASE("of a head that was trained before there was a wrapper, a gradient stays in its first") {
  two([](const Group& group, int rank) {
    Net net;
    loss(net, rank + 1).backward();
    net.child("body").zero_grad();
    const std::vector<float> own = net.child("head").parameters()[0].grad().to_vector<float>();
    net.requires_grad_("head", false);
    DDP ddp(net, group, {.find_unused_parameters = true});
    net.requires_grad_("head", true);
    *net.with_head = false;
    loss(ddp, rank + 1).backward();
    CHECK(net.child("head").parameters()[0].grad().to_vector<float>() == own);
    CHECK(same_everywhere(net.child("body").parameters()[0].grad(), group));
  });
}

TEST_CASE("a parameter that another wrapper has taken is told before anything moves") {
  two([](const Group& group, int rank) {
    nn::Linear shared(3, 2);
    shared.requires_grad_(false);
    struct Holds : nn::Module {
      explicit Holds(const nn::Linear& part) { add("shared", part); }
      nn::Linear own = add("own", nn::Linear(3, 3));
      Tensor forward(const Tensor& x) override { return child("shared")(own(x)); }
    };
    Holds first(shared), second(shared);
    std::optional<DDP> a(std::in_place, first, group);
    DDP b(second, group);
    for (DDP* ddp : {&*a, &b}) loss(*ddp, rank + 1).backward();
    shared.requires_grad_(true);
    a->zero_grad();
    loss(*a, rank + 1).backward();  // has it now
    for (int k = 0; k < 2; ++k) {
      b.zero_grad();
      CHECK_THROWS_WITH(
          loss(b, rank + 1).backward(),
          doctest::Contains("shared.weight already belongs to a distributed wrapper"));
    }
    a.reset();  // and then b may
    b.zero_grad();
    loss(b, rank + 1).backward();
    check_all_equal(second, group, true);
  });
}

TEST_CASE("a reducer whose exchange fails leaves no hooks, and refuses to go on") {
  CHECK_THROWS_WITH(
      two([](const Group& group, int) {
        Mlp net, other;
        const NamedTensors parameters = net.named_parameters();
        std::vector<nn::ParameterSpec> specs;
        for (const auto& [name, tensor] : parameters) specs.push_back({name, tensor.shape()});
        const auto plan = nn::plan_buckets(specs, apart);
        nn::Reducer reducer(parameters, plan, group);
        for (nn::ParameterSpec& spec : specs) spec.dtype = DType::f64;  // and the gradients are f32
        loss(net, 1).backward();
        const auto before = parameters[3].second.grad().to_vector<float>();
        CHECK_THROWS_WITH(reducer.exchange(nn::plan_buckets(specs, apart)),
                          doctest::Contains("the plan of buckets could not be exchanged"));
        for (const auto& [name, tensor] : parameters) {
          CHECK_FALSE(tensor.grad_slot().has_final_hook());
        }
        CHECK(parameters[3].second.grad().to_vector<float>() == before);
        CHECK_THROWS_WITH(reducer.backward(loss(net, 1), 1),
                          doctest::Contains("has had no buckets"));
        CHECK_THROWS_WITH(reducer.follow({}), doctest::Contains("has had no buckets"));
        CHECK_THROWS_WITH(reducer.exchange(plan), doctest::Contains("has had no buckets"));
        group.check();
      }),
      doctest::Contains("the plan of buckets could not be exchanged"));
}

TEST_CASE("PowerSGD keeps what it left out by parameter, whatever the buckets become") {
  struct Wide : nn::Module {
    nn::Linear a = add("a", nn::Linear(16, 16, false)), b = add("b", nn::Linear(16, 16, false));
  };
  // Gradients of a and b in steps; what comes of b is the same, whether a is frozen for a while or
  // buckets are exchanged.
  const auto gradient = [](const Tensor& weight, int seed) {
    std::vector<float> values;
    for (int i = 0; i < 256; ++i) values.push_back(static_cast<float>((i * seed) % 13 - 6));
    return sum(weight * Tensor::from(values, {16, 16}));
  };
  for (const bool freeze : {false, true}) {
    two([&](const Group& group, int rank) {
      Wide one, other;
      DDP changes(one, group, {.order = {"a.weight", "b.weight"}});
      DDP stays(other, group, {.order = {"b.weight"}, .ignored = {"a.weight"}});
      nn::PowerSGD first(group, {.start_powerSGD_iter = 1}),
          second(group, {.start_powerSGD_iter = 1});
      changes.register_comm_hook(first.hook());
      stays.register_comm_hook(second.hook());
      for (int k = 0; k < 6; ++k) {
        if (freeze && k == 3) one.requires_grad_("a", false);
        if (freeze && k == 5) one.requires_grad_("a", true);
        const bool has_a = one.a.weight.requires_grad();
        if (!freeze && k == 3) {
          std::vector<nn::ParameterSpec> specs;
          for (const auto& [name, tensor] : one.named_parameters()) {
            specs.push_back({name, tensor.shape()});
          }
          changes.reducer().exchange(nn::plan_buckets(specs, k == 3 ? apart : nn::BucketCaps{}));
        }
        one.zero_grad();
        other.zero_grad();
        const int seed = 3 + 2 * rank + k;
        const Tensor of_b = gradient(one.b.weight, seed);
        (has_a ? of_b + gradient(one.a.weight, 5 * seed + 2) : of_b).backward();
        gradient(other.b.weight, seed).backward();
        CAPTURE(k);
        CHECK(one.b.weight.grad().to_vector<float>() == other.b.weight.grad().to_vector<float>());
        CHECK(same_everywhere(one.b.weight.grad(), group));
      }
    });
  }
}

TEST_CASE("PowerSGD begins anew for a part that took another's place") {
  two([](const Group& group, int rank) {
    nn::Sequential net(nn::Linear(16, 16, false)), fresh(nn::Linear(16, 16, false));
    const auto input = [&](int k) {
      std::vector<float> values;
      for (int i = 0; i < 64; ++i)
        values.push_back(static_cast<float>((i * (3 + k + rank)) % 7 - 3));
      return Tensor::from(values, {4, 16});
    };
    DDP ddp(net, group);
    nn::PowerSGD power(group, {.start_powerSGD_iter = 1}), anew(group, {.start_powerSGD_iter = 1});
    ddp.register_comm_hook(power.hook());
    for (int k = 0; k < 3; ++k) {
      ddp.zero_grad();
      loss_of(ddp(input(k))).backward();
    }
    net.replace_child("0", nn::Linear(16, 16, false));
    fresh.load_state_dict(net.state_dict());
    ddp.zero_grad();
    loss_of(ddp(input(9))).backward();  // from now on rank 0's weights
    CHECK(same_everywhere(net.parameters()[0], group));
    const NamedTensors state = power.state_dict();
    REQUIRE(state.size() == 3);
    const auto error = std::find_if(state.begin(), state.end(), [](const auto& each) {
      return each.first == "0.weight.error";
    });
    REQUIRE(error != state.end());
    // What is left out of this one gradient alone: with it the rank's own gradient is whole.
    fresh.zero_grad();
    loss_of(fresh(input(9))).backward();
    const Tensor whole = net.parameters()[0].grad() + error->second;
    const auto got = whole.to_vector<float>(),
               want = fresh.parameters()[0].grad().to_vector<float>();
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == doctest::Approx(want[i]));
  });
}
