// SPDX-License-Identifier: Apache-2.0
// Steps of FSDP that are not the plain one: accumulated, clipped, with frozen and tied parameters,
// with dropout, recomputed.
#include <peal/autograd/checkpoint.h>
#include <peal/nn/checkpoint_wrapper.h>
#include <peal/nn/layers/dropout.h>
#include <peal/nn/optim/clip_grad.h>
#include <peal/nn/optim/sgd.h>

#include <limits>

#include "fsdp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

struct Quiet {
  explicit Quiet(FSDP& fsdp) : scope(fsdp.no_sync()) {}
  FSDP::NoSync scope;
};

}  // namespace

TEST_CASE("microbatches, reduced each or only the last, are one batch") {
  for (const int world : {1, 2, 3}) {
    for (const bool deferred : {false, true}) {
      for (const bool reshard : {false, true}) {
        ranks(world, [&](const Group& group, int rank) {
          SmallConv model = fresh(make_conv), whole = fresh(make_conv);
          FSDP fsdp(model, group,
                    {.wrap = nn::wrap_by_type({"Linear"}),
                     .schedule = {.reshard_after_forward = reshard}});
          nn::AdamW optimizer(fsdp.local_parameters()), expected(whole.parameters());
          for (int step = 0; step < 3; ++step) {
            optimizer.zero_grad();
            expected.zero_grad();
            for (int k = 0; k < 4; ++k) {
              const Batch batch = batch_of(model, 2 * world, 4 * step + k);
              mul(loss_of(whole, batch), 0.25).backward();
              const auto backward = [&] {
                mul(loss_of(fsdp, rows_of(batch, rank, world)), 0.25).backward();
              };
              if (deferred && k < 3) {
                const auto scope = fsdp.no_sync();
                backward();
                for (const auto& action : fsdp.actions()) {
                  CHECK(action.what != nn::UnitAction::What::reduce);
                }
              } else {
                backward();
              }
            }
            optimizer.step();
            expected.step();
          }
          CHECK(difference(fsdp.state_dict(), whole.state_dict()) < 1e-12);
        });
      }
    }
  }
}

TEST_CASE("zero_grad of the model, and of the optimizer, drop what there is") {
  two([](const Group& group, int rank) {
    for (const bool of_model : {false, true}) {
      for (const bool synchronised : {false, true}) {
        SmallConv model = fresh(make_conv), whole = fresh(make_conv);
        FSDP fsdp(model, group);
        nn::SGD optimizer(fsdp.local_parameters(), {.lr = 0.1});
        nn::SGD expected(whole.parameters(), {.lr = 0.1});
        {
          const auto scope = synchronised ? nullptr : std::make_unique<Quiet>(fsdp);
          loss_of(fsdp, batch_of(model, 2, 50)).backward();
        }
        if (of_model) {
          fsdp.zero_grad();
        } else {
          optimizer.zero_grad();
        }
        const Batch batch = batch_of(model, 4, 3);
        loss_of(fsdp, rows_of(batch, rank, 2)).backward();
        loss_of(whole, batch).backward();
        optimizer.step();
        expected.step();
        CHECK(difference(fsdp.state_dict(), whole.state_dict()) < 1e-12);
      }
    }
  });
}

TEST_CASE("frozen parameters are gathered, never reduced, and stay") {
  for (const bool reshard : {false, true}) {
    ranks(3, [&](const Group& group, int rank) {
      SmallConv model = fresh(make_conv), whole = fresh(make_conv);
      for (SmallConv* each : {&model, &whole}) {
        each->requires_grad_("conv2", false);       // a unit, between trained ones
        each->requires_grad_("fc1.weight", false);  // beside a bias that is trained
      }
      FSDP fsdp(model, group,
                {.wrap = nn::wrap_by_type({"Conv2d", "Linear"}),
                 .schedule = {.reshard_after_forward = reshard}});
      nn::AdamW optimizer(fsdp.local_parameters()), expected(whole.parameters());
      for (int step = 0; step < 5; ++step) {
        optimizer.zero_grad();
        expected.zero_grad();
        const Batch batch = batch_of(model, 6, step);
        loss_of(fsdp, rows_of(batch, rank, 3)).backward();
        loss_of(whole, batch).backward();
        optimizer.step();
        expected.step();
        for (const auto& [what, unit] : fsdp.actions()) {
          const bool of_frozen = fsdp.units()[static_cast<std::size_t>(unit)].path == "conv2";
          CHECK(!(of_frozen && what == nn::UnitAction::What::reduce));
        }
      }
      for (const auto& [name, piece] : fsdp.local_parameters()) {
        const bool frozen = name.starts_with("conv2") || name == "fc1.weight";
        CHECK(piece.requires_grad() == !frozen);
        CHECK(piece.grad().defined() == !frozen);
      }
      CHECK(difference(fsdp.state_dict(), whole.state_dict()) < 1e-12);
    });
  }
}

TEST_CASE("a frozen weight is there until backward has come through it") {
  struct Adapted : nn::Module {
    nn::Linear frozen = add("frozen", nn::Linear(4, 4));
    Tensor scale = add_parameter("scale", full({4}, 2.0));
    Adapted() { frozen.requires_grad_(false); }
    Tensor forward(const Tensor& x) override { return tanh(frozen(x)) * scale; }
  };
  two([](const Group& group, int rank) {
    nn::Sequential model{nn::Linear(3, 4), Adapted()}, whole{nn::Linear(3, 4), Adapted()};
    model.to(DType::f64);
    whole.to(DType::f64);
    whole.load_state_dict(model.state_dict());
    FSDP fsdp(model, group, {.wrap = nn::wrap_by_name({"1"})});
    const Tensor x = randn({4, 3}, DType::f64);
    sum(fsdp(x.rows(2 * rank, 2 * rank + 2)) * 2).backward();
    sum(whole(x)).backward();
    nn::SGD optimizer(fsdp.local_parameters(), {.lr = 0.1}),
        expected(whole.parameters(), {.lr = 0.1});
    optimizer.step();
    expected.step();
    CHECK(difference(fsdp.state_dict(), whole.state_dict()) < 1e-12);
  });
}

TEST_CASE(
    "states of a model and its optimizer go on at another number of ranks, and in one process") {
  std::vector<Batch> batches;
  for (int step = 0; step < 10; ++step) batches.push_back(batch_of(fresh(make_conv), 12, step));
  const auto train = [&](nn::Module& net, nn::Optimizer& optimizer, int rank, int world, int from) {
    for (int step = from; step < from + 5; ++step) {
      optimizer.zero_grad();
      loss_of(net, rows_of(batches[static_cast<std::size_t>(step)], rank, world)).backward();
      optimizer.step();
    }
  };
  SmallConv whole = fresh(make_conv);
  nn::AdamW reference(whole.named_parameters(), {.lr = 1e-2});
  train(whole, reference, 0, 1, 0);
  NamedTensors model_state, optimizer_state;
  const auto copied = [](const NamedTensors& state) {
    NamedTensors copies;
    for (const auto& [name, tensor] : state) copies.emplace_back(name, tensor.clone());
    return copies;
  };
  const NamedTensors halfway = copied(whole.state_dict());
  const NamedTensors moments = copied(reference.state_dict());
  train(whole, reference, 0, 1, 5);
  for (const int world : {4, 1, 2, 3}) {
    // What the run before saved, the first time one process's.
    const NamedTensors from = model_state.empty() ? halfway : model_state;
    const NamedTensors state = optimizer_state.empty() ? moments : optimizer_state;
    ranks(world, [&](const Group& group, int rank) {
      SmallConv model = fresh(make_conv);
      const auto policy = nn::wrap_by_type({world % 2 == 0 ? "Linear" : "Conv2d"});
      FSDP fsdp(model, group, {.wrap = policy});
      nn::AdamW optimizer(fsdp.local_parameters(), {.lr = 1});
      fsdp.load_state_dict(from);
      fsdp.load_optimizer_state_dict(optimizer, state);
      const NamedTensors same = fsdp.state_dict(),
                         moments_of = fsdp.optimizer_state_dict(optimizer);
      CHECK(difference(same, from) == 0);
      REQUIRE(moments_of.size() == state.size());
      for (std::size_t i = 0; i < state.size(); ++i) {
        CHECK(moments_of[i].first == state[i].first);
        CHECK(moments_of[i].second.shape() == state[i].second.shape());
        if (state[i].second.dtype() != DType::f64) continue;
        CHECK(moments_of[i].second.to_vector<double>() == state[i].second.to_vector<double>());
      }
      if (rank == 0) {
        model_state = copied(same);
        optimizer_state = copied(moments_of);
      }
      train(fsdp, optimizer, rank, world, 5);
      CHECK(difference(fsdp.state_dict(), whole.state_dict()) < 1e-10);
    });
  }
  SmallConv plain = fresh(make_conv);
  nn::AdamW optimizer(plain.named_parameters());
  plain.load_state_dict(model_state);
  optimizer.load_state_dict(optimizer_state);
  train(plain, optimizer, 0, 1, 5);
  CHECK(difference(plain.state_dict(), whole.state_dict()) < 1e-10);
}

TEST_CASE("a tied parameter whose two modules are units is of neither, and trained once") {
  two([](const Group& group, int rank) {
    nn::GPT model = fresh(make_gpt), whole = fresh(make_gpt);
    FSDP fsdp(model, group, {.wrap = nn::wrap_by_type({"Embedding", "Linear", "LayerNorm"})});
    CHECK(contains(fsdp.explain(), "tied lm_head.weight is transformer.wte.weight"));
    CHECK(fsdp.units()[0].flats.size() == 1);
    CHECK(fsdp.units()[0].flats[0].entries.size() == 1);
    nn::AdamW optimizer(fsdp.local_parameters()), expected(whole.parameters());
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      expected.zero_grad();
      const Batch batch = batch_of(model, 4, step);
      loss_of(fsdp, rows_of(batch, rank, 2)).backward();
      loss_of(whole, batch).backward();
      optimizer.step();
      expected.step();
    }
    const NamedTensors state = fsdp.state_dict();
    CHECK(difference(state, whole.state_dict()) < 1e-12);
    CHECK(state.front().second.raw() == state.back().second.raw());  // still tied
  });
}

TEST_CASE("the norm of gradients is the whole model's, on every rank") {
  struct Ones : nn::Module {
    Tensor w = add_parameter("w", full({8}, 1.0, DType::f64));
    Tensor s = add_parameter("s", full({}, 1.0, DType::f64));
    Tensor forward(const Tensor& x) override { return sum(x * w) + s; }
  };
  for (int world = 1; world <= 4; ++world) {
    ranks(world, [&](const Group& group, int rank) {
      Ones ones;
      FSDP fsdp(ones, group);
      const auto backward = [&] {
        fsdp.zero_grad();
        fsdp(full({8}, 1.0, DType::f64)).backward();
      };
      backward();
      CHECK(fsdp.clip_grad_norm_(1.0) == 3.0);
      for (const auto& [name, piece] : fsdp.local_parameters()) {
        for (const double g : piece.grad().to_vector<double>()) CHECK(g == 1.0 / (3.0 + 1e-6));
      }
      backward();
      CHECK(fsdp.clip_grad_norm_(5.0, std::numeric_limits<double>::infinity()) == 1.0);
      CHECK(fsdp.clip_grad_norm_(5.0, 1.0) == 9.0);
      // Of a model, beside one process.
      SmallConv model = fresh(make_conv), whole = fresh(make_conv);
      FSDP sharded(model, group, {.wrap = nn::wrap_by_type({"Linear"})});
      const Batch batch = batch_of(model, 2 * world, 1);
      loss_of(sharded, rows_of(batch, rank, world)).backward();
      loss_of(whole, batch).backward();
      for (const double p : {1.0, 2.0, 3.0}) {
        const double norm = nn::clip_grad_norm_(whole.parameters(), 0.1, p).item<double>();
        CHECK(std::abs(sharded.clip_grad_norm_(0.1, p) - norm) < 1e-12);
      }
    });
  }
}

TEST_CASE("dropout draws in a sharded model what it draws in a plain one, recomputed too") {
  const auto made = [] {
    manual_seed(3);
    nn::Sequential net{nn::Linear(3, 8), nn::Dropout(0.5), nn::Linear(8, 8), nn::Dropout(0.1),
                       nn::Linear(8, 2)};
    net.to(DType::f64);
    return net;
  };
  for (const bool recomputed : {false, true}) {
    CAPTURE(recomputed);
    ranks(3, [&](const Group& group, int rank) {
      nn::Sequential model = made(), whole = made();
      if (recomputed) nn::apply_activation_checkpointing(model, {"Linear", "Dropout"});
      FSDP fsdp(model, group, {.wrap = nn::wrap_by_type({"Linear"})});
      nn::SGD optimizer(fsdp.local_parameters(), {.lr = 0.1}),
          expected(whole.parameters(), {.lr = 0.1});
      for (int step = 0; step < 3; ++step) {
        const Batch batch = batch_of(model, 12, step);
        optimizer.zero_grad();
        expected.zero_grad();
        const auto backward = [&](nn::Module& net, int of, double divisor) {
          manual_seed(static_cast<std::uint64_t>(10 * step + of));  // each rank draws others
          (loss_of(net, rows_of(batch, of, 3)) / divisor).backward();
        };
        for (int of = 0; of < 3; ++of) backward(whole, of, 3);
        backward(fsdp, rank, 1);
        optimizer.step();
        expected.step();
      }
      CHECK(difference(fsdp.state_dict(), whole.state_dict()) < 1e-12);
    });
  }
}

TEST_CASE("recomputed units are gathered for it, within and around what is recomputed") {
  struct Recomputed : nn::Module {
    nn::Linear a = add("a", nn::Linear(3, 4));
    nn::Linear b = add("b", nn::Linear(4, 4));
    nn::Linear d = add("d", nn::Linear(4, 4));
    nn::Linear c = add("c", nn::Linear(4, 2));
    Tensor forward(const Tensor& x) override {
      return c(checkpoint([this](const Tensor& y) { return tanh(d(tanh(b(tanh(a(y)))))); }, x));
    }
  };
  ranks(3, [](const Group& group, int rank) {
    manual_seed(3);
    Recomputed model, whole;
    model.to(DType::f64);
    whole.to(DType::f64);
    whole.load_state_dict(model.state_dict());
    FSDP fsdp(model, group, {.wrap = nn::wrap_by_name({"a", "b", "d"})});
    const std::vector<nn::UnitSchedule::Unit> units(4);
    nn::SGD optimizer(fsdp.local_parameters(), {.lr = 0.1}),
        expected(whole.parameters(), {.lr = 0.1});
    for (int step = 0; step < 3; ++step) {
      const Tensor x = randn({6, 3}, DType::f64);
      optimizer.zero_grad();
      expected.zero_grad();
      sum(square(fsdp(x.rows(2 * rank, 2 * rank + 2)))).backward();
      CHECK(nn::fault_in(fsdp.actions(), units, 2) == "");
      mul(sum(square(whole(x))), 1.0 / 3).backward();
      optimizer.step();
      expected.step();
    }
    CHECK(difference(fsdp.state_dict(), whole.state_dict()) < 1e-12);
  });
}

TEST_CASE("two ranks in f32: the bits of DDP, statistics too") {
  struct Normed : nn::Module {
    nn::Conv2d conv = add("conv", nn::Conv2d(1, 3, 3));
    nn::BatchNorm2d norm = add("norm", nn::BatchNorm2d(3));
    nn::Linear fc = add("fc", nn::Linear(108, 3));
    Tensor forward(const Tensor& x) override { return fc(flatten(relu(norm(conv(x))), 1)); }
  };
  two([](const Group& group, int rank) {
    manual_seed(5);
    Normed model, other;
    other.load_state_dict(model.state_dict());
    FSDP fsdp(model, group, {.wrap = nn::wrap_by_type({"Conv2d", "BatchNorm2d", "Linear"})});
    DDP ddp(other, group);
    nn::AdamW optimizer(fsdp.local_parameters()), expected(other.parameters());
    for (int step = 0; step < 10; ++step) {
      manual_seed(static_cast<std::uint64_t>(10 * step + rank));
      const Tensor x = randn({2, 1, 8, 8}), y = randint(0, 3, {2});
      optimizer.zero_grad();
      expected.zero_grad();
      cross_entropy(fsdp(x), y).backward();
      cross_entropy(ddp(x), y).backward();
      optimizer.step();
      expected.step();
    }
    const NamedTensors mine = fsdp.state_dict(), theirs = other.state_dict();
    REQUIRE(mine.size() == theirs.size());
    for (std::size_t i = 0; i < mine.size(); ++i) {
      CAPTURE(mine[i].first);
      CHECK(std::string(static_cast<const char*>(mine[i].second.raw()),
                        mine[i].second.view().bytes()) ==
            std::string(static_cast<const char*>(theirs[i].second.raw()),
                        theirs[i].second.view().bytes()));
    }
  });
}
