// SPDX-License-Identifier: Apache-2.0
// FSDP with mixed precision: units that are gathered, computed and reduced in fewer bits than the
// masters have.
#include <peal/nn/optim/sgd.h>
#include <peal/tests/errors.h>

#include <string_view>

#include "fsdp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

using comm::Collective;

// In f32; its weights, what it makes of small whole numbers, and the gradients of that are whole
// numbers below 256, which bf16 holds.
struct Whole : nn::Module {
  nn::Linear a = add("a", nn::Linear(2, 3));
  nn::Linear b = add("b", nn::Linear(3, 2));
  Whole() {
    std::int64_t next = 0;
    for (const Tensor& p : parameters()) {
      for (std::int64_t i = 0; i < p.numel(); ++i) {
        p.data<float>()[i] = static_cast<float>(next++ * 5 % 3 - 1);
      }
    }
  }
  Tensor forward(const Tensor& x) override { return b(a(x)); }
};

Tensor row(int rank, int micro) {
  return Tensor::from(std::vector<float>{static_cast<float>(rank % 3), static_cast<float>(micro)},
                      {1, 2});
}

SmallConv conv() {
  manual_seed(7);
  return {};
}

Batch images(int rows, int step) {
  manual_seed(static_cast<std::uint64_t>(step) + 100);
  return {randn({rows, 1, 8, 8}), randint(0, 3, {rows})};
}

struct Deferred {
  explicit Deferred(FSDP& fsdp) : scope(fsdp.no_sync()) {}
  FSDP::NoSync scope;
};

const nn::MixedPrecision in_bf16{.param_dtype = DType::bf16};

}  // namespace

TEST_CASE("in bf16 and f16 what these hold is as in f32, accumulated and reduced by any way") {
  for (const int world : {1, 2, 3, 4}) {
    for (const DType low : {DType::bf16, DType::f16}) {
      for (const bool deferred : {false, true}) {
        for (const bool wide : {false, true}) {
          ranks(world, [&](const Group& group, int rank) {
            Whole model, whole;
            nn::MixedPrecision mixed{.param_dtype = low};
            if (wide) mixed.reduce_dtype = DType::f32;
            FSDP fsdp(model, group, {.wrap = nn::wrap_by_name({"b"}), .mixed_precision = mixed});
            nn::SGD optimizer(fsdp.local_parameters(), {.lr = 1.0});
            nn::SGD expected(whole.parameters(), {.lr = 1.0});
            for (int micro = 0; micro < 2; ++micro) {
              for (int r = 0; r < world; ++r) sum(whole(row(r, micro))).backward();
              const Tensor y = [&] {
                const auto scope =
                    deferred && micro == 0 ? std::make_unique<Deferred>(fsdp) : nullptr;
                Tensor out = fsdp(row(rank, micro));
                mul(sum(out), static_cast<double>(world)).backward();
                return out;
              }();
              CHECK(y.dtype() == low);
            }
            for (const auto& [name, piece] : fsdp.local_parameters()) {
              CHECK(piece.dtype() == DType::f32);
              CHECK(piece.grad().dtype() == DType::f32);
            }
            optimizer.step();
            expected.step();
            const NamedTensors state = fsdp.state_dict();
            for (const auto& [name, tensor] : state) CHECK(tensor.dtype() == DType::f32);
            CHECK(difference(state, whole.state_dict()) == 0);
          });
        }
      }
    }
  }
}

TEST_CASE("ten steps in bf16 are near those in f32, and their masters finer than bf16") {
  for (const bool reshard : {false, true}) {
    ranks(2, [&](const Group& group, int rank) {
      SmallConv model = conv(), whole = conv();
      FSDP fsdp(model, group,
                {.wrap = nn::wrap_by_type({"Linear", "Conv2d"}),
                 .schedule = {.reshard_after_forward = reshard},
                 .mixed_precision = in_bf16});
      nn::AdamW optimizer(fsdp.local_parameters(), {.lr = 1e-3});
      nn::AdamW expected(whole.parameters(), {.lr = 1e-3});
      for (int step = 0; step < 10; ++step) {
        const Batch batch = images(8, step);
        optimizer.zero_grad();
        expected.zero_grad();
        const Tensor mine = loss_of(fsdp, rows_of(batch, rank, 2));
        mine.backward();
        const Tensor theirs = loss_of(whole, batch);
        theirs.backward();
        fsdp.clip_grad_norm_(10.0);
        optimizer.step();
        expected.step();
        Tensor mean = cast(mine.detach(), DType::f32).clone();
        group.all_reduce(mean, comm::ReduceOp::avg).wait();
        CHECK(std::abs(mean.item<float>() - theirs.item<float>()) < 0.02);
      }
      const NamedTensors state = fsdp.state_dict();
      CHECK(difference(state, whole.state_dict()) < 0.02);
      NamedTensors coarse = state;
      for (auto& [name, tensor] : coarse) tensor = cast(tensor, DType::bf16);
      CHECK(difference(state, coarse) > 0);
    });
  }
}

TEST_CASE("half as many bytes are gathered, and reduced where reduce_dtype is not f32") {
  two([](const Group& group, int rank) {
    const auto bytes_of = [&](const nn::MixedPrecision& mixed) {
      SmallConv model = conv();
      FSDP fsdp(model, group, {.wrap = nn::wrap_by_type({"Linear"}), .mixed_precision = mixed});
      const auto before = group.counters();
      loss_of(fsdp, rows_of(images(4, 0), rank, 2)).backward();
      const auto step = group.counters() - before;
      return std::pair(step[Collective::all_gather].bytes, step[Collective::reduce_scatter].bytes);
    };
    const auto full = bytes_of({}), low = bytes_of(in_bf16);
    CHECK(full.first > 0);
    CHECK(low == std::pair(full.first / 2, full.second / 2));
    CHECK(bytes_of({.param_dtype = DType::bf16, .reduce_dtype = DType::f32}) ==
          std::pair(full.first / 2, full.second));
    CHECK(bytes_of({.reduce_dtype = DType::bf16}) == std::pair(full.first, full.second / 2));
  });
}

TEST_CASE("gradients without communication add up in reduce_dtype") {
  two([](const Group& group, int) {
    nn::Linear model(1, 1, false);
    FSDP fsdp(model, group,
              {.mixed_precision = {.param_dtype = DType::bf16, .reduce_dtype = DType::f32}});
    const auto backward = [&] { sum(fsdp(full({1, 1}, 1.0))).backward(); };
    {
      const auto scope = fsdp.no_sync();
      for (int k = 0; k < 300; ++k) backward();  // in bf16 256 + 1 is 256
    }
    backward();
    for (const auto& [name, piece] : fsdp.local_parameters()) {
      if (piece.numel() > 0) CHECK(piece.grad().item<float>() == 301);
    }
  });
}

TEST_CASE("an average in f16 holds what a sum of all ranks would not") {
  for (const int world : {2, 3, 4}) {
    CAPTURE(world);
    ranks(world, [](const Group& group, int) {
      nn::Linear model(4, 1, false);
      model.weight.detach().zero_();
      FSDP fsdp(model, group,
                {.mixed_precision = {.param_dtype = DType::f16, .reduce_dtype = DType::f16}});
      sum(fsdp(full({1, 4}, 60000.0))).backward();
      for (const float g : fsdp.local_parameters()[0].second.grad().to_vector<float>()) {
        CHECK(g == 60000);
      }
    });
  }
}

TEST_CASE("states of masters load into the plain model, and into FSDP at other precisions") {
  NamedTensors model_state, optimizer_state;
  const auto train = [](FSDP& fsdp, nn::AdamW& optimizer, const Group& group, int from) {
    for (int step = from; step < from + 3; ++step) {
      optimizer.zero_grad();
      loss_of(fsdp, rows_of(images(4, step), group.rank(), group.world())).backward();
      optimizer.step();
    }
  };
  ranks(4, [&](const Group& group, int rank) {
    SmallConv model = conv();
    FSDP fsdp(model, group, {.mixed_precision = in_bf16});
    nn::AdamW optimizer(fsdp.local_parameters());
    train(fsdp, optimizer, group, 0);
    const NamedTensors one = fsdp.state_dict(), other = fsdp.optimizer_state_dict(optimizer);
    if (rank == 0) {
      model_state = one;
      optimizer_state = other;
    }
  });
  ranks(2, [&](const Group& group, int) {
    for (const nn::MixedPrecision& mixed : {in_bf16, nn::MixedPrecision()}) {
      SmallConv model, plain;
      FSDP fsdp(model, group, {.mixed_precision = mixed});
      nn::AdamW optimizer(fsdp.local_parameters());
      fsdp.load_state_dict(model_state);
      fsdp.load_optimizer_state_dict(optimizer, optimizer_state);
      plain.load_state_dict(model_state);
      CHECK(difference(fsdp.state_dict(), model_state) == 0);
      CHECK(difference(plain.state_dict(), model_state) == 0);
      CHECK(difference(fsdp.optimizer_state_dict(optimizer), optimizer_state) == 0);
      train(fsdp, optimizer, group, 3);
      CHECK(difference(fsdp.state_dict(), model_state) > 0);
    }
  });
}

TEST_CASE("the model is of its own type within summon_full_parameters(), and where it is read") {
  two([](const Group& group, int rank) {
    Whole model;
    FSDP fsdp(model, group, {.wrap = nn::wrap_by_name({"b"}), .mixed_precision = in_bf16});
    const Tensor weight = model.a.named_parameters()[0].second;
    CHECK(weight.dtype() == DType::bf16);
    {
      const auto there = fsdp.summon_full_parameters();
      CHECK(weight.dtype() == DType::f32);
      CHECK(fsdp(row(rank, 1)).dtype() == DType::f32);
      const NoGrad guard;
      weight.copy_(full(weight.shape(), 1.0 / 3));  // more bits than bf16 has
    }
    CHECK(weight.dtype() == DType::bf16);
    const auto value = [&] { return fsdp.state_dict()[0].second.to_vector<float>()[0]; };
    CHECK(value() == 1.0F / 3);
    const Tensor y = fsdp(row(rank, 1));
    CHECK(value() == 1.0F / 3);  // between a forward and its backward
    sum(y).backward();
    CHECK(fsdp.local_parameters()[0].second.grad().dtype() == DType::f32);
  });
}

TEST_CASE("a state_dict() or a summon that fails leaves the model as it was") {
  std::atomic<int> came = 0;
  failures(2, [&](const Group& group, int) {
    Whole model;
    FSDP fsdp(model, group, {.wrap = nn::wrap_by_name({"b"}), .mixed_precision = in_bf16});
    group.abort("no more gathers");
    for (int k = 0; k < 2; ++k) {
      check_has(error_of([&] { fsdp.state_dict(); }), "no more gathers");
      CHECK(model.a.weight.dtype() == DType::bf16);
      check_has(error_of([&] { const auto there = fsdp.summon_full_parameters(); }),
                "no more gathers");
      CHECK(model.a.weight.dtype() == DType::bf16);
    }
    ++came;
  });
  CHECK(came > 0);
}

TEST_CASE("hooks of gradients that were there before run in any type, and stay") {
  two([](const Group& group, int) {
    for (const nn::MixedPrecision& mixed :
         {nn::MixedPrecision(), in_bf16, nn::MixedPrecision{.reduce_dtype = DType::bf16}}) {
      nn::Linear model(2, 3);
      make_whole(model);
      GradSlot& slot = model.weight.grad_slot();
      int after = 0;
      const std::uint64_t id = slot.add_hook([&](const Tensor&) { ++after; });
      model.weight.register_hook([](const Tensor& g) { return mul(g, 2.0); });
      {
        FSDP fsdp(model, group, {.mixed_precision = mixed});
        sum(fsdp(full({1, 2}, 3.0))).backward();
        for (const auto& [name, piece] : fsdp.local_parameters()) {
          if (piece.numel() == 0) continue;
          for (const float value : piece.grad().to_vector<float>()) {
            CHECK(value == (name == "weight" ? 6 : 1));
          }
        }
        slot.remove_hook(id);
        fsdp.zero_grad();
        sum(fsdp(full({1, 2}, 3.0))).backward();
      }
      CHECK(after == 1);
      CHECK(&model.weight.grad_slot() == &slot);
      CHECK(slot.dtype() == DType::f32);
    }
  });
}

TEST_CASE("without a wrapper a gradient in another type than its leaf's stays an Error") {
  const Tensor x = full({2}, 1.0).set_requires_grad();
  const Tensor y =
      record("wrong", x.detach().clone(), {x}, [](const Tensor& g) { return cast(g, DType::f64); });
  check_has(error_of([&] { sum(y).backward(); }), "gradient: expected f32");
}

TEST_CASE("inputs are given in param_dtype, unless they are to stay; buffers are converted") {
  struct Sees : nn::Module {
    nn::BatchNorm2d norm = add("norm", nn::BatchNorm2d(1));
    DType* seen;  // of all handles
    explicit Sees(DType* to) : seen(to) {}
    Tensor forward(const Tensor& x) override {
      *seen = x.dtype();
      return norm(cast(x, norm.named_parameters()[0].second.dtype()));
    }
  };
  two([](const Group& group, int) {
    for (const bool casts : {false, true}) {
      DType seen = DType::u8;
      Sees model(&seen);
      FSDP fsdp(model, group,
                {.mixed_precision = {.param_dtype = DType::bf16,
                                     .buffer_dtype = DType::bf16,
                                     .cast_forward_inputs = casts}});
      fsdp(full({2, 1, 2, 2}, 1.0));
      CHECK(seen == (casts ? DType::bf16 : DType::f32));
      for (const auto& [name, buffer] : model.named_buffers()) {
        if (is_floating(buffer.dtype())) CHECK(buffer.dtype() == DType::bf16);
      }
      CHECK(contains(fsdp.explain(), "parameters bf16"));
    }
  });
}

TEST_CASE("what the model gives is in output_dtype, and its gradients are as without") {
  two([](const Group& group, int rank) {
    std::vector<std::vector<float>> gradients[2];
    for (const bool wide : {false, true}) {
      Whole model;
      nn::MixedPrecision precision = in_bf16;
      if (wide) precision.output_dtype = DType::f32;
      FSDP fsdp(model, group, {.wrap = nn::wrap_by_name({"b"}), .mixed_precision = precision});
      const Tensor y = fsdp(row(rank, 1));
      CHECK(y.dtype() == (wide ? DType::f32 : DType::bf16));
      sum(cast(y, DType::f32)).backward();
      for (const auto& [name, piece] : fsdp.local_parameters()) {
        gradients[wide ? 1 : 0].push_back(piece.grad().to_vector<float>());
      }
      const NoGrad guard;
      CHECK(fsdp.call(&Whole::forward, row(rank, 1)).dtype() == y.dtype());
      CHECK(contains(fsdp.explain(), wide ? "outputs f32" : "outputs own"));
    }
    CHECK(gradients[0] == gradients[1]);
  });
}

TEST_CASE("beside frozen parameters in bf16 others train as in f32") {
  ranks(3, [](const Group& group, int rank) {
    Whole model, whole;
    for (Whole* each : {&model, &whole}) each->requires_grad_("a", false);
    FSDP fsdp(model, group, {.wrap = nn::wrap_by_name({"b"}), .mixed_precision = in_bf16});
    for (int r = 0; r < 3; ++r) sum(whole(row(r, 1))).backward();
    mul(sum(fsdp(row(rank, 1))), 3.0).backward();
    nn::SGD optimizer(fsdp.local_parameters(), {.lr = 1.0});
    nn::SGD expected(whole.parameters(), {.lr = 1.0});
    optimizer.step();
    expected.step();
    CHECK(difference(fsdp.state_dict(), whole.state_dict()) == 0);
  });
}

TEST_CASE("tied parameters in bf16 train as in f32, and stay tied") {
  struct Tied : nn::Module {
    nn::Linear a = add("a", nn::Linear(2, 2, false));
    nn::Linear b = add("b", nn::Linear(a.weight));
    Tied() { make_whole(*this); }
    Tensor forward(const Tensor& x) override { return b(a(x)); }
  };
  two([](const Group& group, int rank) {
    Tied model, whole;
    FSDP fsdp(model, group, {.wrap = nn::wrap_by_name({"b"}), .mixed_precision = in_bf16});
    for (int r = 0; r < 2; ++r) sum(whole(row(r, 1))).backward();
    mul(sum(fsdp(row(rank, 1))), 2.0).backward();
    nn::SGD optimizer(fsdp.local_parameters(), {.lr = 1.0});
    nn::SGD expected(whole.parameters(), {.lr = 1.0});
    optimizer.step();
    expected.step();
    const NamedTensors state = fsdp.state_dict();
    REQUIRE(state.size() == 2);
    CHECK(state[0].second.raw() == state[1].second.raw());
    CHECK(difference(state, whole.state_dict()) == 0);
  });
}

TEST_CASE("precisions that make no sense, or differ between ranks, are an Error on all") {
  const auto told = [](const std::function<nn::MixedPrecision(int rank)>& mixed) {
    return failure([&](const Group& group, int rank) {
      Whole model;
      FSDP fsdp(model, group, {.mixed_precision = mixed(rank)});
    });
  };
  CHECK(contains(told([](int) {
                   return nn::MixedPrecision{.param_dtype = DType::bf16,
                                             .keep_low_precision_grads = true};
                 }),
                 "keep_low_precision_grads is DistributedDataParallel's"));
  CHECK(contains(told([](int) { return nn::MixedPrecision{.param_dtype = DType::i32}; }),
                 "param_dtype: expected f16 or bf16, got i32"));
  CHECK(contains(told([](int) { return nn::MixedPrecision{.output_dtype = DType::i64}; }),
                 "output_dtype: expected f16, bf16 or f32, got i64"));
  CHECK(contains(told([](int rank) {
                   return nn::MixedPrecision{.param_dtype = rank == 0 ? DType::bf16 : DType::f16};
                 }),
                 "mixed_precision parameters bf16"));
}
