// SPDX-License-Identifier: Apache-2.0
// AdamWScheduleFree beside the algorithm of its paper with all three points written out, and how it
// goes from one to another.
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/threads.h>
#include <peal/nn/nn.h>
#include <peal/tests/difference.h>
#include <peal/tests/errors.h>

#include <algorithm>
#include <cmath>
#include <vector>

using namespace peal;
using namespace peal::testing;

namespace {

using Options = nn::AdamWScheduleFreeOptions;
const std::vector<double> first{1, -2, 0.5, 4};

// At y of step t, from 0.
double gradient_at(double y, int t) { return y - 0.5 + 0.25 * std::cos(3.0 * t); }

struct Points {
  std::vector<double> x = first, y = first, z = first;
};

// As the paper has it; gradients are divided by the roots of unbiased squares, as the package does.
// `betas`: the beta1 of each step, where it changes.
Points after_steps(int steps, const Options& o, const std::vector<double>& betas = {}) {
  Points at;
  double weights = 0, largest = 0;
  std::vector<double> squares(first.size(), 0);
  for (int t = 0; t < steps; ++t) {
    const double beta1 = betas.empty() ? o.beta1 : betas.at(static_cast<std::size_t>(t));
    const double rate =
        o.lr * (t < o.warmup_steps ? (t + 1) / static_cast<double>(o.warmup_steps) : 1);
    largest = std::max(largest, rate);
    const double weight = std::pow(t + 1, o.r) * std::pow(largest, o.weight_lr_power);
    weights += weight;
    const double c = weights == 0 ? 0 : weight / weights;
    for (std::size_t i = 0; i < first.size(); ++i) {
      const double g = gradient_at(at.y[i], t) * (o.maximize ? -1 : 1);
      squares[i] = o.beta2 * squares[i] + (1 - o.beta2) * g * g;
      const double root = std::sqrt(squares[i] / (1 - std::pow(o.beta2, t + 1)));
      at.z[i] -= rate * (g / (root + o.eps) + o.weight_decay * at.y[i]);
      at.x[i] = (1 - c) * at.x[i] + c * at.z[i];
      at.y[i] = (1 - beta1) * at.z[i] + beta1 * at.x[i];
    }
  }
  return at;
}

Tensor parameter(DType dtype = DType::f64) {
  return cast(Tensor::from(first, {4}, Device{}), dtype).clone().set_requires_grad();
}

void run_steps(nn::AdamWScheduleFree& optimizer, const Tensor& p, int from, int to) {
  for (int t = from; t < to; ++t) {
    p.zero_grad();
    std::vector<double> g;
    for (const double y : p.detach().to_vector<double>()) g.push_back(gradient_at(y, t));
    p.grad_slot().accumulate(Tensor::from(g, {4}, Device{}));
    optimizer.step();
  }
}

double farthest(const Tensor& p, const std::vector<double>& wanted) {
  const auto found = p.detach().to_vector<double>();
  double most = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    most = larger(most, std::abs(found[i] - wanted[i]));
  return most;
}

}  // namespace

TEST_CASE("the steps of the algorithm, at y and at x") {
  for (const Options& o :
       {Options{.lr = 0.1}, Options{.lr = 0.1, .beta1 = 0.7, .beta2 = 0.9, .eps = 1e-3},
        Options{.lr = 0.1, .weight_decay = 0.2, .warmup_steps = 4},
        Options{.lr = 0.05, .warmup_steps = 20, .r = 0.5, .weight_lr_power = 1},
        Options{.lr = 0.1, .weight_lr_power = 0, .maximize = true}, Options{.lr = 0}}) {
    for (const int steps : {1, 2, 9}) {
      CAPTURE(steps);
      const Points wanted = after_steps(steps, o);
      const Tensor p = parameter();
      nn::AdamWScheduleFree optimizer({p}, o);
      optimizer.train();
      run_steps(optimizer, p, 0, steps);
      CHECK(farthest(p, wanted.y) < 1e-12);
      optimizer.eval();
      optimizer.eval();
      CHECK(farthest(p, wanted.x) < 1e-12);
      optimizer.train();
      optimizer.train();
      CHECK(farthest(p, wanted.y) < 1e-12);
    }
  }
}

TEST_CASE("a beta1 that changes moves y, and not what is judged") {
  const std::vector<double> betas{0.95, 0.9, 0.85, 0.85, 0.9, 0.99};
  const Options o{.lr = 0.1, .weight_decay = 0.2};
  const Points wanted = after_steps(6, o, betas);
  const Tensor p = parameter();
  nn::AdamWScheduleFree optimizer({p}, o);
  optimizer.train();
  for (int t = 0; t < 6; ++t) {
    optimizer.set_setting("beta1", betas[static_cast<std::size_t>(t)], 0);
    run_steps(optimizer, p, t, t + 1);
  }
  CHECK(farthest(p, wanted.y) < 1e-12);
  optimizer.set_setting("beta1", 0.5, 0);
  optimizer.eval();
  CHECK(farthest(p, wanted.x) < 1e-12);
  optimizer.train();
  CHECK(farthest(p, wanted.y) < 1e-12);
}

TEST_CASE("a rate that falls counts by the largest so far") {
  const Tensor p = parameter();
  nn::AdamWScheduleFree optimizer({p}, {.lr = 0.1});
  optimizer.train();
  run_steps(optimizer, p, 0, 1);
  optimizer.set_lr(0);
  run_steps(optimizer, p, 1, 2);
  for (const auto& [key, tensor] : optimizer.state_dict()) {
    if (key.ends_with(".weight_sum")) CHECK(tensor.item<double>() == doctest::Approx(0.02));
    if (key.ends_with(".share")) CHECK(tensor.item<double>() == doctest::Approx(0.5));
  }
}

TEST_CASE("a step at x is an Error that says what to call, and changes nothing") {
  const Tensor p = parameter();
  nn::AdamWScheduleFree optimizer({p}, {.lr = 0.1});
  const auto step = [&] { run_steps(optimizer, p, 0, 1); };
  check_has(error_of(step),
            "AdamWScheduleFree: step: the parameters are those that the model is "
            "judged with; call train()");
  CHECK(farthest(p, first) == 0);
  optimizer.train();
  step();
  optimizer.eval();
  CHECK_THROWS_AS(step(), Error);
  optimizer.train();
  run_steps(optimizer, p, 1, 2);
  CHECK(farthest(p, after_steps(2, {.lr = 0.1}).y) < 1e-12);
}

TEST_CASE("a saved state goes on at its point, bit for bit") {
  for (const bool at_x : {false, true}) {
    const Tensor p = parameter();
    nn::AdamWScheduleFree optimizer({p}, {.lr = 0.1, .warmup_steps = 3});
    optimizer.train();
    run_steps(optimizer, p, 0, 4);
    if (at_x) optimizer.eval();
    const Tensor q = p.detach().clone().set_requires_grad();
    NamedTensors state;
    for (const auto& [key, tensor] : optimizer.state_dict())
      state.emplace_back(key, tensor.clone());
    nn::AdamWScheduleFree other({q}, {});
    other.load_state_dict(state);
    CHECK(other.setting("train_mode") == (at_x ? 0 : 1));
    for (auto* each : {&optimizer, &other}) each->train();
    run_steps(optimizer, p, 4, 7);
    run_steps(other, q, 4, 7);
    CHECK(p.detach().to_vector<double>() == q.detach().to_vector<double>());
  }
}

TEST_CASE("groups go by their own beta1, and a parameter without a step stays") {
  const Tensor p = parameter(), q = parameter(), still = parameter();
  nn::AdamWScheduleFree optimizer({{{p, still}, {.lr = 0.1}}, {{q}, {.lr = 0.1, .beta1 = 0.5}}});
  optimizer.train();
  for (int t = 0; t < 3; ++t) {
    for (const Tensor& each : {p, q}) {
      each.zero_grad();
      std::vector<double> g;
      for (const double y : each.detach().to_vector<double>()) g.push_back(gradient_at(y, t));
      each.grad_slot().accumulate(Tensor::from(g, {4}, Device{}));
    }
    optimizer.step();
  }
  optimizer.eval();
  CHECK(farthest(p, after_steps(3, {.lr = 0.1}).x) < 1e-12);
  CHECK(farthest(q, after_steps(3, {.lr = 0.1, .beta1 = 0.5}).x) < 1e-12);
  CHECK(farthest(still, first) == 0);
}

TEST_CASE("a parameter that comes into steps later is as one that began then") {
  const Options o{.lr = 0.1, .warmup_steps = 2};
  const Tensor p = parameter(), q = parameter();
  nn::AdamWScheduleFree optimizer({p, q}, o);
  optimizer.train();
  for (int t = 0; t < 5; ++t) {
    for (const auto& [each, own] : {std::pair{p, t}, {q, t - 2}}) {
      each.zero_grad();
      if (own < 0) continue;
      std::vector<double> g;
      for (const double y : each.detach().to_vector<double>()) g.push_back(gradient_at(y, own));
      each.grad_slot().accumulate(Tensor::from(g, {4}, Device{}));
    }
    optimizer.step();
  }
  CHECK(farthest(q, after_steps(3, o).y) < 1e-12);
  optimizer.eval();
  CHECK(farthest(p, after_steps(5, o).x) < 1e-12);
  CHECK(farthest(q, after_steps(3, o).x) < 1e-12);
}

TEST_CASE("what it refuses") {
  check_has(error_of([] { nn::AdamWScheduleFree({parameter()}, {.beta1 = 0}); }), "beta1");
  check_has(error_of([] { nn::AdamWScheduleFree({parameter()}, {.warmup_steps = -1}); }),
            "warmup_steps");
  const Tensor low = parameter(DType::bf16);
  nn::AdamWScheduleFree optimizer({low}, {});
  optimizer.train();
  check_has(error_of([&] { optimizer.step(); }), "is bf16; expected f32 or f64");
  comm::run_ranks(2, [](const comm::ProcessGroup& group) {
    nn::AdamWScheduleFree whole({parameter()}, {});
    check_has(error_of([&] { nn::OptimizerShards(group).place(whole); }),
              "[zero] the optimizer: on all ranks: AdamWScheduleFree");
    nn::AdamW other({parameter()}, {});
    nn::Optimizer& mine = group.rank() == 0 ? static_cast<nn::Optimizer&>(whole) : other;
    check_has(error_of([&] { nn::OptimizerShards(group).place(mine); }),
              "[zero] the optimizer: rank 0: AdamWScheduleFree");
  });
}
