// SPDX-License-Identifier: Apache-2.0
// What FSDP cannot do is an Error that says so, on all ranks: gradients in parts, writes within a
// forward, thawed parameters, norms of pieces, weights that are computed, steps that were left.
#include <peal/nn/nn.h>
#include <peal/nn/parallel/sharded/sharded_checkpoint.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include <chrono>
#include <limits>
#include <stdexcept>

#include "fsdp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

// `shared` is used in one segment with a backward of its own, or in two.
struct Segments : nn::Module {
  nn::Linear stem = add("stem", nn::Linear(3, 3));
  nn::Linear shared = add("shared", nn::Linear(3, 3));
  bool twice = false;
  Tensor forward(const Tensor& x) override {
    const Tensor y = again(shared, stem(x));
    return twice ? again(shared, y) : y;
  }
};

struct Words : nn::Module {
  nn::Embedding words = add("words", nn::Embedding(6, 4, {.max_norm = 0.1}));
  nn::Linear head = add("head", nn::Linear(4, 2));
  Tensor forward(const Tensor& x) override { return head(words(x)); }
};

struct Normed : nn::Module {
  nn::Linear a = add("a", nn::Linear(3, 4));
  nn::Linear b = add("b", nn::weight_norm(nn::Linear(4, 2)));
  Tensor forward(const Tensor& x) override { return b(tanh(a(x))); }
};

}  // namespace

TEST_CASE("another part of a gradient that was reduced is an Error on all ranks") {
  for (const bool twice : {false, true}) {
    const auto all = failures(2, [&](const Group& group, int) {
      Segments model;
      model.twice = twice;
      FSDP fsdp(model, group, {.wrap = nn::wrap_by_type({"Linear"})});
      sum(fsdp(full({2, 3}, 1.0))).backward();
    });
    for (const std::string& message : all) {
      if (twice) {
        check_has(message, "[fsdp] rank ");
        check_has(message, "a parameter of unit shared got another part of its gradient");
      } else {
        CHECK(message.empty());
      }
    }
  }
}

TEST_CASE("what a forward writes into a parameter is not lost without a word") {
  for (const int world : {1, 2}) {
    for (const bool reshard : {false, true}) {
      const auto all = failures(world, [&](const Group& group, int) {
        Words model;
        FSDP fsdp(
            model, group,
            {.wrap = nn::wrap_by_name({"words"}), .schedule = {.reshard_after_forward = reshard}});
        sum(fsdp(randint(0, 6, {2, 3}))).backward();
      });
      for (const std::string& message : all) {
        check_has(message, "wrote into words.weight");
        check_has(message, "summon_full_parameters()");
      }
    }
  }
}

TEST_CASE("a thawed parameter, and one that is frozen beside others, are Errors by name") {
  const auto thawed = failures(2, [](const Group& group, int rank) {
    SmallConv model = fresh(make_conv);
    model.requires_grad_("conv2", false);
    FSDP fsdp(model, group, {.wrap = wrap_layers()});
    loss_of(fsdp, batch_of(model, 2, rank)).backward();
    model.requires_grad_("conv2.bias", true);
    {
      const NoGrad guard;
      loss_of(fsdp, batch_of(model, 2, rank));  // wants none
    }
    loss_of(fsdp, batch_of(model, 2, rank));
  });
  for (const std::string& message : thawed) {
    check_has(message, "conv2.bias of unit conv2 wants a gradient now");
  }
  const auto frozen = failures(2, [](const Group& group, int rank) {
    SmallConv model = fresh(make_conv);
    FSDP fsdp(model, group, {.wrap = wrap_layers()});
    model.requires_grad_("fc1.weight", false);
    loss_of(fsdp, batch_of(model, 2, rank)).backward();
  });
  for (const std::string& message : frozen) {
    check_has(message, "fc1.weight of unit fc1 got no gradient");
    check_has(message, "fc1.weight was frozen after the model was sharded");
  }
}

TEST_CASE("a whole unit may be frozen for a step") {
  two([](const Group& group, int rank) {
    SmallConv model = fresh(make_conv), whole = fresh(make_conv);
    FSDP fsdp(model, group, {.wrap = wrap_layers()});
    nn::AdamW optimizer(fsdp.local_parameters()), expected(whole.parameters());
    for (int step = 0; step < 4; ++step) {
      for (SmallConv* each : {&model, &whole}) each->requires_grad_("conv2", step % 2 == 0);
      optimizer.zero_grad();
      expected.zero_grad();
      const Batch batch = batch_of(model, 4, step);
      loss_of(fsdp, rows_of(batch, rank, 2)).backward();
      loss_of(whole, batch).backward();
      optimizer.step();
      expected.step();
      CHECK(difference(fsdp.state_dict(), whole.state_dict()) < 1e-12);
    }
  });
}

TEST_CASE("what looks at more than a rank's pieces refuses them") {
  two([](const Group& group, int rank) {
    SmallConv model = fresh(make_conv);
    FSDP fsdp(model, group, {.wrap = wrap_layers()});
    const NamedTensors pieces = fsdp.local_parameters();
    nn::AdamW optimizer(pieces);
    loss_of(fsdp, batch_of(model, 2, rank)).backward();
    check_has(error_of([&] { nn::clip_grad_norm_(optimizer.parameters(), 1.0); }),
              "call the wrapper's clip_grad_norm_()");
    nn::GradScaler alone;
    check_has(error_of([&] { alone.step(optimizer); }), "give the scaler the wrapper's group");
    const std::string refused = "this rank's piece of a sharded parameter";
    check_has(error_of([&] { nn::LAMB wrong(pieces); }), refused);
    check_has(error_of([&] { nn::LARS wrong(pieces); }), refused);
    check_has(error_of([&] { nn::Adafactor wrong(pieces); }), refused);
    check_has(error_of([&] { nn::Muon wrong(pieces); }), refused);
    check_has(error_of([&] { nn::LBFGS wrong(pieces); }), refused);
  });
}

TEST_CASE("what rank 0 alone saves is an Error on all, soon") {
  const Folder folder;
  for (const bool shards : {false, true}) {
    CAPTURE(shards);
    const auto begin = std::chrono::steady_clock::now();
    const auto all = failures(2, [&](const Group& group, int rank) {
      SmallConv model = fresh(make_conv);
      FSDP fsdp(model, group, {.wrap = wrap_layers()});
      if (rank == 0 && shards) nn::save_sharded(folder.path, {{"model", fsdp}}, group);
      if (rank == 0 && !shards) fsdp.state_dict();
      loss_of(fsdp, batch_of(model, 2, rank)).backward();  // the other's next call
    });
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
    for (const std::string& message : all) {
      check_has(message, "all ranks must make the same calls");
      check_has(message, "rank 1");
      check_has(message, "forward 1, parameters of unit conv1");
      check_has(message, shards ? "save " : "the whole model after forward 0, parameters of");
    }
  }
  CHECK(folder.entries() == 0);
}

TEST_CASE("with the group a scaler leaves a step out on all ranks") {
  two([](const Group& group, int rank) {
    SmallConv model = fresh(make_conv);
    FSDP fsdp(model, group, {.wrap = wrap_layers()});
    nn::AdamW optimizer(fsdp.local_parameters());
    nn::GradScaler scaler({}, group);
    const NamedTensors before = fsdp.state_dict();
    scaler.scale(loss_of(fsdp, batch_of(model, 2, rank))).backward();
    if (rank == 1) {
      for (const auto& [name, piece] : fsdp.local_parameters()) {
        if (name == "conv1.weight") fill_(piece.grad(), std::numeric_limits<double>::infinity());
      }
    }
    CHECK(!scaler.step(optimizer));
    scaler.update();
    CHECK(difference(fsdp.state_dict(), before) == 0);
    fsdp.zero_grad();
    scaler.scale(loss_of(fsdp, batch_of(model, 2, rank))).backward();
    CHECK(scaler.step(optimizer));
    CHECK(difference(fsdp.state_dict(), before) > 0);
  });
}

TEST_CASE("a weight that is computed before a unit's forward is of a unit around it") {
  two([](const Group& group, int rank) {
    Normed model = fresh(+[] { return Normed(); }), whole = fresh(+[] { return Normed(); });
    const std::string refused =
        error_of([&] { FSDP wrong(model, group, {.wrap = nn::wrap_by_name({"b"})}); });
    check_has(refused, "unit b is a");
    check_has(refused, "let the unit be a module around it");
    FSDP fsdp(model, group, {.wrap = nn::wrap_by_name({"a"})});
    nn::SGD optimizer(fsdp.local_parameters(), {.lr = 0.1}),
        expected(whole.parameters(), {.lr = 0.1});
    for (int step = 0; step < 2; ++step) {
      const Batch batch = batch_of(model, 4, step);
      optimizer.zero_grad();
      expected.zero_grad();
      loss_of(fsdp, rows_of(batch, rank, 2)).backward();
      loss_of(whole, batch).backward();
      optimizer.step();
      expected.step();
    }
    CHECK(difference(fsdp.state_dict(), whole.state_dict()) < 1e-12);
  });
}

TEST_CASE("a backward that an exception has left ends the steps") {
  const auto all = failures(2, [](const Group& group, int rank) {
    SmallConv model = fresh(make_conv);
    FSDP fsdp(model, group, {.wrap = nn::wrap_by_type({"Linear"})});
    // By then both linear layers are reduced.
    model.conv1.weight.grad_slot().add_hook(
        [](const Tensor&) { throw std::runtime_error("left"); });
    CHECK_THROWS_WITH(loss_of(fsdp, batch_of(model, 2, rank)).backward(), "left");
    loss_of(fsdp, batch_of(model, 2, rank)).backward();
  });
  for (const std::string& message : all) {
    check_has(message, "[fsdp] rank ");
    check_has(message, "an earlier backward was left by an exception");
  }
}

TEST_CASE("what such a backward has in flight is not dropped under way") {
  for (const bool clips : {false, true}) {
    const auto all = failures(2, [&](const Group& group, int rank) {
      SmallConv model = fresh(make_conv);
      FSDP fsdp(model, group, {.wrap = nn::wrap_by_type({"Linear"})});
      model.conv1.weight.grad_slot().add_hook(
          [](const Tensor&) { throw std::runtime_error("left"); });
      CHECK_THROWS_WITH(loss_of(fsdp, batch_of(model, 2, rank)).backward(), "left");
      group.barrier().wait();  // both have left it
      if (clips) {
        fsdp.clip_grad_norm_(1.0);
      } else {
        fsdp.zero_grad();
      }
    });
    for (const std::string& message : all) {
      check_has(message, "an earlier backward was left by an exception");
    }
  }
  two([](const Group& group, int rank) {
    {
      SmallConv model = fresh(make_conv);
      FSDP fsdp(model, group, {.wrap = nn::wrap_by_type({"Linear"})});
      model.conv1.weight.grad_slot().add_hook(
          [](const Tensor&) { throw std::runtime_error("left"); });
      CHECK_THROWS_WITH(loss_of(fsdp, batch_of(model, 2, rank)).backward(), "left");
    }
    const Tensor one = full({2}, 1.0);  // with the wrapper gone ranks go on
    group.all_reduce(one).wait();
    CHECK(one.to_vector<float>() == std::vector<float>{2, 2});
  });
}

TEST_CASE("what is called outside of a forward of the model does not pile up") {
  two([](const Group& group, int) {
    SmallConv model = fresh(make_conv);
    FSDP fsdp(model, group, {.wrap = nn::wrap_by_type({"Linear"})});
    for (int k = 0; k < 3; ++k) {
      fsdp.state_dict();
      CHECK(fsdp.actions().empty());
    }
    for (int k = 0; k < 3; ++k) {
      model.fc1(randn({2, 20}, DType::f64));
      CHECK(nn::describe(fsdp.actions()) == "gather 1, use 1, free 1");
    }
  });
}
