// SPDX-License-Identifier: Apache-2.0
// FSDP: trains as one process does, follows its schedule, and says what is not there.
#include <cmath>
#include <string_view>

#include "fsdp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

constexpr int steps = 20;

template <class M>
NamedTensors alone(M (*make)(), int rows) {
  M model = fresh(make);
  nn::AdamW optimizer(model.named_parameters(), {.lr = 1e-2});
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    loss_of(model, batch_of(model, rows, step)).backward();
    optimizer.step();
  }
  return model.state_dict();
}

// All options, worlds 1 to 4. How many runs there were. `enclosing`: units that are there while
// others within them come and go.
template <class M>
int check_parity(M (*make)(), const std::vector<nn::WrapPolicy>& policies, int enclosing = 0) {
  int runs = 0;
  for (int world = 1; world <= 4; ++world) {
    const NamedTensors expected = alone(make, 2 * world);
    for (const nn::WrapPolicy& policy : policies) {
      for (int bits = 0; bits < 8; ++bits) {
        ++runs;
        CAPTURE(world);
        CAPTURE(bits);
        ranks(world, [&](const Group& group, int rank) {
          M model = fresh(make);
          const nn::ScheduleOptions schedule{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
          FSDP fsdp(model, group, {.wrap = policy, .schedule = schedule});
          nn::AdamW optimizer(fsdp.local_parameters(), {.lr = 1e-2});
          std::vector<nn::UnitSchedule::Unit> units;
          for (const auto& unit : fsdp.units()) units.push_back({unit.trained(), unit.frozen()});
          for (int step = 0; step < steps; ++step) {
            optimizer.zero_grad();
            loss_of(fsdp, rows_of(batch_of(model, 2 * world, step), rank, world)).backward();
            const int most =
                schedule.reshard_after_forward ? 2 + enclosing : static_cast<int>(units.size());
            CHECK(nn::fault_in(fsdp.actions(), units, most) == "");
            optimizer.step();
          }
          CHECK(difference(fsdp.state_dict(), expected) < 1e-10);
        });
      }
    }
  }
  return runs;
}

nn::Sequential make_mlp() { return nn::mlp({3, 4, 1, 2}); }

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no Error";
}

}  // namespace

TEST_CASE("a convolutional net trains as in one process") {
  CHECK(check_parity(make_conv, {nn::WrapPolicy(), nn::wrap_by_type({"Conv2d", "Linear"})}) == 64);
}

TEST_CASE("an mlp with layers of fewer elements than ranks trains as in one process") {
  CHECK(check_parity(make_mlp, {nn::wrap_by_type({"Linear"})}) == 32);
}

TEST_CASE("a GPT with tied embeddings trains as in one process, nested units too") {
  CHECK(check_parity(make_gpt, {nn::wrap_by_type({"GptBlock"})}) == 32);
  CHECK(check_parity(make_gpt, {nn::wrap_by_type({"GptTransformer", "GptAttention", "LayerNorm"})},
                     1) == 32);
}

TEST_CASE("what a step does is its plan") {
  ranks(3, [](const Group& group, int rank) {
    nn::GPT model = fresh(make_gpt);
    FSDP fsdp(model, group, {.wrap = nn::wrap_by_type({"GptBlock"})});
    const std::vector<nn::UnitSchedule::Unit> units(4);
    for (int step = 0; step < 3; ++step) {
      loss_of(fsdp, rows_of(batch_of(model, 3, step), rank, 3)).backward();
      CHECK(nn::describe(fsdp.actions()) == nn::describe(nn::plan_step(units, {}, step)));
    }
    CHECK(contains(fsdp.explain(), "unit transformer.h.1\n"));
  });
}

TEST_CASE("between steps a rank has its pieces, and reading a parameter names it") {
  two([](const Group& group, int rank) {
    SmallConv model = fresh(make_conv);
    const NamedTensors before = [&] {
      NamedTensors copies;
      for (const auto& [name, tensor] : model.state_dict())
        copies.emplace_back(name, tensor.clone());
      return copies;
    }();
    FSDP fsdp(model, group, {.wrap = nn::wrap_by_type({"Linear"})});
    const auto check_sharded = [&] {
      for (const auto& [name, tensor] : model.named_parameters()) {
        CHECK(!tensor.storage()->has_bytes());
        const std::string message = message_of([&, p = tensor] { p.to_vector<double>(); });
        CHECK(contains(message, "[fsdp]"));
        CHECK(contains(message, name));
        CHECK(contains(message, "summon_full_parameters"));
      }
    };
    check_sharded();
    // Names and shapes are the model's; pieces make up the parameter.
    CHECK(model.fc1.weight.shape() == Shape{7, 20});
    const NamedTensors pieces = fsdp.local_parameters(), whole = model.named_parameters();
    REQUIRE(pieces.size() == whole.size());
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      CHECK(pieces[i].first == whole[i].first);
      const Tensor counts = Tensor::scalar(pieces[i].second.numel());
      group.all_reduce(counts).wait();
      CHECK(counts.item<std::int64_t>() == whole[i].second.numel());
    }
    CHECK(difference(fsdp.state_dict(), before) == 0);
    loss_of(fsdp, batch_of(model, 2, rank)).backward();
    check_sharded();
    for (const auto& [name, tensor] : model.named_parameters()) {
      CHECK(contains(message_of([&, p = tensor] { p.grad().to_vector<double>(); }), name));
    }
    // Nor does an optimizer of the model's parameters train nothing.
    nn::AdamW wrong(model.named_parameters());
    const std::string message = message_of([&] { wrong.step(); });
    CHECK(contains(message, "conv1.weight"));
    CHECK(contains(message, "local_parameters()"));
    // What is written while it is whole stays.
    {
      const auto there = fsdp.summon_full_parameters();
      CHECK(model.fc1.weight.to_vector<double>() == before[4].second.to_vector<double>());
      const NoGrad guard;
      fill_(model.fc1.weight, 3);
    }
    check_sharded();
    for (const double value : fsdp.state_dict()[4].second.to_vector<double>()) CHECK(value == 3);
    fsdp.load_state_dict(before);
    CHECK(difference(fsdp.state_dict(), before) == 0);
    check_sharded();
  });
}

TEST_CASE(
    "a module that is called by itself is gathered by itself, and evaluation leaves nothing") {
  two([](const Group& group, int) {
    SmallConv model = fresh(make_conv);
    const Tensor x = randn({2, 20}, DType::f64);
    const auto expected = model.fc1(x).to_vector<double>();
    FSDP fsdp(model, group, {.wrap = nn::wrap_by_type({"Linear"})});
    CHECK(model.fc1(x).to_vector<double>() == expected);
    CHECK(!model.fc1.weight.storage()->has_bytes());
    const NoGrad guard;
    loss_of(fsdp, batch_of(model, 2, 0));
    for (const Tensor& p : model.parameters()) CHECK(!p.storage()->has_bytes());
    CHECK(contains(message_of([&] {
                     model.conv1(randn({1, 1, 8, 8}, DType::f64));
                   }),
                   "conv1.weight"));
  });
}

TEST_CASE(
    "values start as rank 0's; models that differ, and what cannot be sharded, all ranks hear of") {
  two([](const Group& group, int rank) {
    nn::Sequential model = fresh(make_mlp);
    const std::vector<double> first = model.parameters()[0].to_vector<double>();
    if (rank == 1) fill_(model.parameters()[0], 5);
    FSDP fsdp(model, group);
    CHECK(fsdp.state_dict()[0].second.to_vector<double>() == first);
    const std::string twice = message_of([&] { FSDP again(model, group); });
    CHECK(contains(twice, "1.weight already belongs to a distributed wrapper"));
    CHECK(contains(twice, "FSDPOptions::wrap names the modules that are units of their own"));
    const std::string differ = message_of([&] {
      FSDP other(rank == 0 ? nn::mlp({3, 4}) : nn::mlp({3, 5}), group);
    });
    CAPTURE(twice);
    CAPTURE(differ);
    CHECK(contains(differ, "[4, 3]"));
    CHECK(contains(differ, "[5, 3]"));
    nn::Sequential with_grad = nn::mlp({3, 4});
    if (rank == 1) sum(with_grad(full({1, 3}, 1.0))).backward();
    CHECK(contains(message_of([&] { FSDP other(with_grad, group); }),
                   "rank 1: 1.weight has a gradient; call zero_grad()"));
    CHECK(contains(message_of([&] {
                     FSDP other(nn::mlp({3, 4}), group, {.wrap = nn::wrap_by_type({"Conv2d"})});
                   }),
                   "no module of the class Conv2d"));
  });
}

TEST_CASE("a sharded model that goes leaves no hook behind, and no values") {
  two([](const Group& group, int rank) {
    nn::Sequential model = fresh(make_mlp);
    {
      FSDP fsdp(model, group, {.wrap = nn::wrap_by_type({"Linear"})});
      loss_of(fsdp, batch_of(model, 2, rank)).backward();
    }
    CHECK(contains(message_of([&] { model(full({1, 3}, 1.0, DType::f64)); }), "1.weight"));
    for (const Tensor& p : model.parameters()) {
      CHECK(!p.grad_slot().has_final_hook());
      CHECK(!p.grad().defined());
    }
  });
}
