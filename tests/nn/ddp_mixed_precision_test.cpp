// SPDX-License-Identifier: Apache-2.0
// Mixed precision of a wrapped model: what ranks have after some steps is what one process has that
// keeps f32 masters beside models in low precision, bit by bit.
#include <peal/autograd/grad_slot.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/compress_hooks.h>
#include <peal/tests/errors.h>

#include <cmath>
#include <vector>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

using Values = std::vector<float>;

struct Net : nn::Module {
  nn::Linear in = add("in", nn::Linear(3, 5)), out = add("out", nn::Linear(5, 2));
  Tensor shift = add_buffer("shift", full({2}, 0.3));
  std::shared_ptr<DType> seen = std::make_shared<DType>();  // of the parameters in forward
  Tensor forward(const Tensor& x) override {
    *seen = in.weight.dtype();
    return out(relu(in(x))) + cast(shift, x.dtype());
  }
  Tensor twice(const Tensor& x, double factor) { return forward(x) + forward(x) * factor; }
};

Tensor input(int rank, int step) {
  Values values;
  for (int i = 0; i < 6; ++i) {
    values.push_back(static_cast<float>((rank * 7 + step * 5 + i * 3) % 11) / 7 - 0.61F);
  }
  return Tensor::from(values, {2, 3});
}

Tensor loss_of(const Tensor& y) {
  const Tensor wide = cast(y, DType::f32);
  return sum(wide * wide) * 0.37;
}

Tensor rounded(const Tensor& x, DType dtype) { return cast(cast(x, dtype), DType::f32); }

// Two ranks in one process: masters, of which a model in low precision is made in each step.
struct Reference {
  explicit Reference(const Net& start, DType dtype) : dtype(dtype) {
    masters.load_state_dict(start.state_dict());
    optimizer = std::make_unique<nn::SGD>(masters.parameters(), nn::SGDOptions{.lr = 0.0625});
  }
  // The gradients of a rank, in the low type.
  std::vector<Tensor> gradients(int rank, int step) const {
    Net low;
    low.load_state_dict(masters.state_dict());
    low.to(dtype);
    low.shift.copy_(cast(masters.shift, dtype));
    loss_of(low(cast(input(rank, step), dtype))).backward();
    std::vector<Tensor> all;
    for (const Tensor& p : low.parameters()) all.push_back(cast(p.grad(), DType::f32));
    return all;
  }
  void turn(int step, DType reduce) {
    optimizer->zero_grad();
    const auto first = gradients(0, step), second = gradients(1, step);
    const std::vector<Tensor> parameters = masters.parameters();
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      const Tensor average = (rounded(first[p], reduce) + rounded(second[p], reduce)) / 2;
      parameters[p].grad_slot().accumulate(rounded(average, reduce));
    }
    optimizer->step();
  }
  DType dtype;
  Net masters;
  std::unique_ptr<nn::SGD> optimizer;
};

void check_same(const nn::Module& mine, const nn::Module& expected) {
  const NamedTensors a = mine.named_parameters(), b = expected.named_parameters();
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(a[i].first);
    CHECK(a[i].second.dtype() == DType::f32);
    CHECK(a[i].second.to_vector<float>() == b[i].second.to_vector<float>());
  }
}

}  // namespace

TEST_CASE("masters in f32 move as in one process, for each type of parameters and of sums") {
  struct Case {
    DType param;
    std::optional<DType> reduce;
    bool keep;
  };
  const Case cases[] = {
      {DType::bf16, std::nullopt, false}, {DType::f16, std::nullopt, false},
      {DType::bf16, DType::f32, false},   {DType::f16, DType::bf16, false},
      {DType::bf16, std::nullopt, true},  {DType::f16, DType::f32, true},
      {DType::bf16, DType::f16, true},
  };
  for (const Case& c : cases) {
    CAPTURE(concat(c.param, " ", c.reduce ? concat(*c.reduce) : "", c.keep ? " kept" : ""));
    two([&](const Group& group, int rank) {
      Net net;
      Reference reference(net, c.param);
      {
        DDP ddp(net, group,
                {.mixed_precision = {.param_dtype = c.param,
                                     .reduce_dtype = c.reduce,
                                     .keep_low_precision_grads = c.keep}});
        nn::SGD optimizer(ddp.parameters(), {.lr = 0.0625});
        const DType reduce = c.reduce.value_or(c.param);
        for (int step = 0; step < 4; ++step) {
          optimizer.zero_grad();
          const Tensor y = ddp(input(rank, step));
          CHECK(y.dtype() == c.param);
          CHECK(*net.seen == c.param);
          CHECK(net.in.weight.dtype() == DType::f32);  // and its own again
          loss_of(y).backward();
          CHECK(net.in.weight.grad().dtype() == (c.keep ? reduce : DType::f32));
          optimizer.step();
          reference.turn(step, reduce);
          check_same(net, reference.masters);
        }
        for (const Tensor& p : net.parameters()) CHECK(same_everywhere(p, group));
      }
      CHECK(net.in.weight.grad().dtype() == DType::f32);
      net.zero_grad();
      loss_of(net(input(rank, 0))).backward();  // the model is an ordinary one again
      CHECK(*net.seen == DType::f32);
    });
  }
}

TEST_CASE("an exception in forward leaves the masters in their places") {
  struct Throws : nn::Module {
    nn::Linear fc = add("fc", nn::Linear(3, 2));
    Tensor forward(const Tensor& x) override {
      const Tensor y = fc(x);
      PEAL_CHECK(y.numel() > 100, "too small");
      return y;
    }
  };
  two([](const Group& group, int) {
    Throws net;
    const auto before = net.fc.weight.to_vector<float>();
    DDP ddp(net, group, {.mixed_precision = {.param_dtype = DType::bf16}});
    CHECK_THROWS_WITH(ddp(ones({2, 3})), doctest::Contains("too small"));
    CHECK(net.fc.weight.to_vector<float>() == before);
    CHECK(net.fc.weight.is_leaf());
  });
}

TEST_CASE("methods by name, evaluation and modules that hold the wrapper are rounded as well") {
  two([](const Group& group, int rank) {
    Net net, low;
    low.load_state_dict(net.state_dict());
    low.to(DType::bf16);
    DDP ddp(net, group, {.mixed_precision = {.param_dtype = DType::bf16}});
    const Tensor x = input(rank, 0);
    nn::Module holds = ddp;
    CHECK(holds(x).dtype() == DType::bf16);
    const Tensor y = ddp.call(&Net::twice, x, 0.5);
    const Tensor expected = low.twice(cast(x, DType::bf16), 0.5);
    CHECK(cast(y, DType::f32).to_vector<float>() == cast(expected, DType::f32).to_vector<float>());
    loss_of(y).backward();
    CHECK(same_everywhere(net.out.weight.grad(), group));
    ddp.eval();
    const NoGrad guard;
    CHECK(ddp(x).dtype() == DType::bf16);
    CHECK(net(x).dtype() == DType::f32);  // past the wrapper
  });
}

TEST_CASE("what a model gives, and a method of its, is in output_dtype") {
  two([](const Group& group, int rank) {
    for (const bool rounds : {false, true}) {
      Net net;
      nn::MixedPrecision precision{.output_dtype = rounds ? DType::f32 : DType::bf16};
      if (rounds) precision.param_dtype = DType::bf16;
      DDP ddp(net, group, {.mixed_precision = precision});
      const Tensor x = input(rank, 1);
      CHECK(ddp(x).dtype() == *precision.output_dtype);
      CHECK(ddp.call(&Net::twice, x, 2.0).dtype() == *precision.output_dtype);
      CHECK(*net.seen == (rounds ? DType::bf16 : DType::f32));
      check_has(ddp.explain(), concat("outputs in ", *precision.output_dtype));
    }
  });
}

TEST_CASE("inputs may be left alone, and buffers are converted for good") {
  struct Normed : nn::Module {
    nn::Linear fc = add("fc", nn::Linear(3, 4));
    nn::BatchNorm1d norm = add("norm", nn::BatchNorm1d(4));
    Tensor forward(const Tensor& x) override { return norm(fc(cast(x, fc.weight.dtype()))); }
  };
  two([](const Group& group, int rank) {
    for (const auto& buffer : {std::optional<DType>(), std::optional<DType>(DType::bf16)}) {
      Normed net;
      DDP ddp(
          net, group,
          {.mixed_precision = {
               .param_dtype = DType::bf16, .buffer_dtype = buffer, .cast_forward_inputs = false}});
      CHECK(net.norm.running_mean.dtype() == buffer.value_or(DType::f32));
      CHECK(net.norm.num_batches_tracked.dtype() == DType::i64);
      const Tensor y = ddp(input(rank, 1));
      CHECK(y.dtype() == DType::bf16);
      loss_of(y).backward();
      CHECK(same_everywhere(net.norm.running_mean, group));
      const auto mean = cast(net.norm.running_mean, DType::f32).to_vector<float>();
      CHECK(mean != Values(4, 0));
    }
  });
}

TEST_CASE(
    "frozen and unused parameters, accumulation and thawing go with gradients that are kept") {
  two([](const Group& group, int rank) {
    Net net;
    net.in.requires_grad_(false);
    DDP ddp(net, group,
            {.find_unused_parameters = true,
             .mixed_precision = {.param_dtype = DType::bf16, .keep_low_precision_grads = true}});
    for (int step = 0; step < 4; ++step) {
      if (step == 2) net.in.requires_grad_(true);
      net.zero_grad();
      {
        const auto guard = ddp.no_sync();
        loss_of(ddp(input(rank, step))).backward();
      }
      loss_of(ddp(input(rank, step + 1))).backward();
      CHECK(net.out.weight.grad().dtype() == DType::bf16);
      CHECK(net.in.weight.grad().defined() == (step >= 2));
      for (const Tensor& p : net.parameters()) {
        if (p.grad().defined()) CHECK(same_everywhere(p.grad(), group));
      }
    }
    CHECK(net.in.weight.grad().dtype() == DType::bf16);
  });
}

TEST_CASE("what mixed precision cannot be is said") {
  two([](const Group& group, int rank) {
    Net net;
    CHECK_THROWS_WITH(DDP(net, group, {.mixed_precision = {.param_dtype = DType::f64}}),
                      doctest::Contains("param_dtype: expected f16 or bf16, got f64"));
    CHECK_THROWS_WITH(DDP(net, group, {.mixed_precision = {.keep_low_precision_grads = true}}),
                      doctest::Contains("in a param_dtype, which is not given"));
    CHECK_THROWS_WITH(
        DDP(net, group, {.mixed_precision = {.param_dtype = rank == 0 ? DType::f16 : DType::bf16}}),
        doctest::Contains("mixed_precision parameters f16"));
    DDP ddp(net, group, {.mixed_precision = {.reduce_dtype = DType::bf16}});
    CHECK_THROWS_WITH(ddp.register_comm_hook(nn::noop_hook()),
                      doctest::Contains("has a hook already"));
  });
}

TEST_CASE("gradients of f64 travel in f32 where reduce_dtype says so") {
  struct One : nn::Module {
    Tensor w = add_parameter("w", ones({4}, DType::f64));
  };
  two([](const Group& group, int) {
    One net;
    DDP ddp(net, group, {.mixed_precision = {.reduce_dtype = DType::f32}});
    sum(net.w * (1 + std::exp2(-40))).backward();
    CHECK(net.w.grad().to_vector<double>() == std::vector<double>(4, 1));
  });
}
