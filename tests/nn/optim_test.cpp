// SPDX-License-Identifier: Apache-2.0
// Optimizers against values that PyTorch 1.13 computed in f64, and their state saved and resumed.
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/ops/ops.h>
#include <peal/nn/optim/adam.h>
#include <peal/nn/optim/plateau.h>
#include <peal/nn/optim/scheduler.h>
#include <peal/nn/optim/sgd.h>
#include <peal/tests/errors.h>

#include <functional>
#include <memory>

using namespace peal;
using namespace peal::testing;

namespace {

Tensor start(DType dtype) {
  Tensor p = dtype == DType::f64 ? Tensor::from<double>({1.0, -2.0, 0.5}, {3})
                                 : Tensor::from<float>({1.0f, -2.0f, 0.5f}, {3});
  return p.set_requires_grad();
}

// The gradient of step t, and one step; from step 2 on the learning rate is half.
void run_step(nn::Optimizer& optimizer, const Tensor& p, int t) {
  const std::vector<double> g{0.5 - t, 0.25 * t + 0.1, -1.5 + 0.3 * t * t};
  p.zero_grad();
  p.grad_slot().accumulate(p.dtype() == DType::f64
                               ? Tensor::from(g, {3})
                               : Tensor::from(std::vector<float>(g.begin(), g.end()), {3}));
  if (t == 2) optimizer.set_lr(optimizer.lr() * 0.5);
  optimizer.step();
}

double element(const Tensor& p, int i) {
  return p.dtype() == DType::f64 ? p.data<double>()[i] : p.data<float>()[i];
}

using Make = std::function<std::unique_ptr<nn::Optimizer>(std::vector<Tensor>)>;

template <class O, class Settings>
Make make(Settings settings) {
  return [settings](std::vector<Tensor> p) { return std::make_unique<O>(std::move(p), settings); };
}

struct Case {
  const char* name;
  Make make;
  double after_four[3];
};

const std::vector<Case>& cases() {
  using nn::Adam, nn::AdamOptions, nn::AdamW, nn::AdamWOptions, nn::SGD, nn::SGDOptions;
  static const std::vector<Case> all{
      {"SGD", make<SGD>(SGDOptions{.lr = 0.1}), {1.2, -2.1174999999999997, 0.72500000000000009}},
      {"SGD, decay",
       make<SGD>(SGDOptions{.lr = 0.1, .weight_decay = 0.01}),
       {1.1970156985127498, -2.1114365182480004, 0.72307434171262497}},
      {"SGD, momentum",
       make<SGD>(SGDOptions{.lr = 0.1, .momentum = 0.9}),
       {1.2267749999999999, -2.1911199999999997, 1.0915250000000001}},
      {"SGD, momentum, dampening, decay",
       make<SGD>(SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01}),
       {1.1138302874776234, -2.1317653715070639, 1.0310983462325554}},
      {"SGD, nesterov, decay",
       make<SGD>(SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}),
       {1.3959469356735592, -2.2724511642934861, 1.2508460479166252}},
      {"Adam",
       make<Adam>(AdamOptions{}),
       {0.99972714050214762, -2.0028133875567407, 0.50255932435818795}},
      {"Adam, all settings",
       make<Adam>(
           AdamOptions{.lr = 0.1, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-3, .weight_decay = 0.1}),
       {0.96353766422681553, -2.0146417157339069, 0.74324784407198863}},
      {"AdamW",
       make<AdamW>(AdamWOptions{}),
       {0.99969715881259469, -2.0027533569447193, 0.50254429250630328}},
      {"AdamW, all settings",
       make<AdamW>(
           AdamWOptions{.lr = 0.1, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-3, .weight_decay = 0.1}),
       {0.95921371918488751, -2.2252471380718974, 0.72922637139644064}}};
  return all;
}

}  // namespace

TEST_CASE("four steps give PyTorch's values") {
  for (const auto& [name, make, after_four] : cases()) {
    for (const DType dtype : {DType::f64, DType::f32}) {
      INFO(name, ", ", name_of(dtype));
      const Tensor p = start(dtype);
      const auto optimizer = make({p});
      for (int t = 0; t < 4; ++t) run_step(*optimizer, p, t);
      const double tolerance = dtype == DType::f64 ? 1e-14 : 1e-6;
      for (int i = 0; i < 3; ++i) {
        CHECK(std::abs(element(p, i) - after_four[i]) <= tolerance);
      }
    }
  }
}

TEST_CASE("state saved after two steps and loaded elsewhere goes on bit for bit") {
  for (const auto& [name, make, after_four] : cases()) {
    INFO(name);
    const Tensor p = start(DType::f32), q = start(DType::f32);
    const auto first = make({p});
    for (int t = 0; t < 3; ++t) run_step(*first, p, t);
    const auto second = make({q});
    q.copy_(p.detach());
    NamedTensors state = first->state_dict();
    second->load_state_dict(state);
    CHECK(second->lr() == first->lr());
    for (int t = 3; t < 6; ++t) {
      run_step(*first, p, t);
      run_step(*second, q, t);
    }
    CHECK(p.to_vector<float>() == q.to_vector<float>());
  }
}

TEST_CASE("a parameter without a gradient is left alone and has no state") {
  const Tensor p = start(DType::f32), frozen = start(DType::f32);
  nn::AdamW optimizer({frozen, p});
  run_step(optimizer, p, 0);
  CHECK(frozen.to_vector<float>() == std::vector<float>{1.0f, -2.0f, 0.5f});
  CHECK(p.to_vector<float>() != frozen.to_vector<float>());
  std::vector<std::string> keys;
  for (const auto& [key, tensor] : optimizer.state_dict()) keys.push_back(key);
  CHECK(keys == std::vector<std::string>{"groups.0.lr", "groups.0.beta1", "groups.0.beta2",
                                         "groups.0.eps", "groups.0.weight_decay",
                                         "groups.0.parameters", "1.step", "1.exp_avg",
                                         "1.exp_avg_sq"});
  optimizer.zero_grad();
  CHECK_FALSE(p.grad().defined());
}

TEST_CASE("state by names finds its parameters in another order, and state by numbers its names") {
  const auto grad = [](const Tensor& p, float value) {
    p.zero_grad();
    p.grad_slot().accumulate(Tensor::from<float>({value, 1, -value}, {3}));
  };
  const auto new_tensors = [] {
    return NamedTensors{{"a", start(DType::f32)}, {"b", start(DType::f32)}};
  };
  for (const bool by_name : {true, false}) {
    INFO("by name: ", by_name);
    const NamedTensors saved = new_tensors();
    NamedTensors loaded = new_tensors();
    nn::Adam first(by_name ? nn::Parameters(saved)
                           : nn::Parameters({saved[0].second, saved[1].second}));
    if (by_name) std::swap(loaded[0], loaded[1]);
    nn::Adam second(loaded);
    for (int step = 0; step < 3; ++step) {
      grad(saved[0].second, 2);
      if (step < 2) grad(saved[1].second, -3);
      if (step == 2) saved[1].second.zero_grad();
      first.step();
    }
    const NamedTensors state = first.state_dict();
    CHECK(state[6].first == (by_name ? "a.step" : "0.step"));
    second.load_state_dict(state);
    for (const auto& [name, tensor] : loaded) {
      const Tensor& like = saved[name == "a" ? 0 : 1].second;
      tensor.copy_(like.detach());
      grad(tensor, 0.5f);
      grad(like, 0.5f);
    }
    first.step();
    second.step();
    for (const auto& [name, tensor] : loaded) {
      INFO(name);
      CHECK(tensor.to_vector<float>() == saved[name == "a" ? 0 : 1].second.to_vector<float>());
    }
    nn::Adam unnamed({start(DType::f32), start(DType::f32)});
    const std::string message = error_of([&] { unnamed.load_state_dict(second.state_dict()); });
    check_has(message, "or by names that these do not have? Names come with named_parameters())");
    check_has(message, "unexpected: a.exp_avg f32 [3]");
  }
  check_has(error_of([&] {
              nn::Adam(NamedTensors{{"w", start(DType::f32)}, {"w", start(DType::f32)}});
            }),
            "Adam: parameter w of shape [3]: another parameter has this name, too");
}

TEST_CASE("a schedule's state is its steps") {
  nn::SGD optimizer({start(DType::f32)}, {.lr = 1});
  nn::LRScheduler scheduler(optimizer, nn::step_lr(2, 0.5));
  for (int i = 0; i < 5; ++i) scheduler.step();
  nn::SGD other({start(DType::f32)}, {.lr = 1});
  nn::LRScheduler resumed(other, nn::step_lr(2, 0.5));
  resumed.load_state_dict(scheduler.state_dict());
  CHECK(resumed.steps() == 5);
  CHECK(other.lr() == 0.25);
  check_has(error_of([&] { resumed.load_state_dict({}); }), "LRScheduler: load_state_dict: 1 diff");
  CHECK(resumed.steps() == 5);
}

TEST_CASE("a step writes the parameter where it lies and counts a version") {
  const Tensor p = start(DType::f32);
  nn::SGD optimizer({p}, {.lr = 0.1});
  const void* place = p.raw();
  const auto version = p.storage()->version();
  run_step(optimizer, p, 0);
  CHECK(p.raw() == place);
  CHECK(p.storage()->version() > version);
}

TEST_CASE("wrong settings and wrong parameters are refused by name") {
  const Tensor p = start(DType::f32);
  const auto sgd = [&](nn::SGDOptions settings) {
    return error_of([&] { nn::SGD({p}, settings); });
  };
  check_has(sgd({.lr = -1}), "SGD: lr: expected a value from 0");
  check_has(sgd({.momentum = -0.1}), "SGD: momentum");
  check_has(sgd({.nesterov = true}), "nesterov wants a momentum above 0");
  check_has(error_of([&] { nn::Adam({p}, {.beta2 = 1}); }), "Adam: beta2: expected a value from 0");
  check_has(error_of([&] { nn::AdamW({p}, {.eps = -1}); }), "AdamW: eps");
  check_has(error_of([&] { nn::Adam(std::vector<Tensor>{}); }), "Adam: there are no parameters");
  check_has(error_of([&] { nn::Adam({p, p}); }), "parameter 1 of shape [3] comes twice");
  check_has(error_of([&] { nn::Adam({Tensor::from<std::int64_t>({1}, {1})}); }),
            "parameter 0 of shape [1] is not a floating leaf");
}

TEST_CASE("groups are optimizers of their own with one step") {
  const auto values = [](const Tensor& p) { return p.to_vector<float>(); };
  const Tensor a = start(DType::f32), b = start(DType::f32);
  const Tensor alone_a = start(DType::f32), alone_b = start(DType::f32);
  nn::AdamW both({{{a}, {.lr = 0.1, .weight_decay = 0}}, {{b}, {.lr = 0.02, .weight_decay = 0.3}}});
  nn::AdamW first({alone_a}, {.lr = 0.1, .weight_decay = 0});
  nn::AdamW second({alone_b}, {.lr = 0.02, .weight_decay = 0.3});
  for (int t = 0; t < 3; ++t) {
    for (const Tensor& p : {a, b, alone_a, alone_b}) {
      p.zero_grad();
      p.grad_slot().accumulate(Tensor::from<float>({0.5f, -0.25f * t, 1}, {3}));
    }
    both.step();
    first.step();
    second.step();
    both.set_setting("weight_decay", 0.1, 1);
    second.set_setting("weight_decay", 0.1);
  }
  CHECK(values(a) == values(alone_a));
  CHECK(values(b) == values(alone_b));
  CHECK(both.lr(0) == 0.1);
  CHECK(both.lr(1) == 0.02);
  CHECK(both.setting("weight_decay", 1) == 0.1);
  both.set_lr(0.5);
  CHECK((both.lr(0) == 0.5 && both.lr(1) == 0.5));
  both.add_group({start(DType::f32)}, {.lr = 3});
  CHECK(both.lr(2) == 3);
  CHECK(both.parameters().size() == 3);
  check_has(error_of([&] { both.add_group({b}, {}); }), "parameter 3 of shape [3] comes twice");
  check_has(error_of([&] { both.setting("momentum"); }),
            "AdamW: there is no setting 'momentum', but: lr beta1 beta2 eps weight_decay");
  check_has(error_of([&] { both.lr(3); }), "there is no group 3, but 3");
  check_has(error_of([&] { both.set_lr(-1, 1); }), "AdamW: lr: expected a value from 0");
}

TEST_CASE("a base rate changes under a schedule, which goes on where it was") {
  const Tensor a = start(DType::f32), b = start(DType::f32);
  nn::SGD optimizer({{{a}, {.lr = 1}}, {{b}, {.lr = 0}}});
  CHECK(optimizer.base_lr(0) == 1);
  optimizer.set_base_lr(0.5, 0);  // without a schedule the rate itself
  CHECK(optimizer.lr(0) == 0.5);
  nn::LRScheduler scheduler(optimizer, nn::step_lr(2, 0.5));
  scheduler.set_steps(2);
  CHECK(optimizer.lr(0) == 0.25);
  CHECK(optimizer.base_lr(0) == 0.5);
  optimizer.set_base_lr(2, 0);
  optimizer.set_base_lr(4, 1);
  CHECK(optimizer.lr(0) == 1);
  CHECK(optimizer.lr(1) == 4);
  scheduler.set_steps(4);
  CHECK(optimizer.lr(0) == 0.5);
  CHECK(optimizer.lr(1) == 1);
}

TEST_CASE("settings of all groups are saved, and a schedule made after loading goes on") {
  const Tensor a = start(DType::f32), b = start(DType::f32);
  nn::SGD optimizer({{{a}, {.lr = 1, .momentum = 0.5}}, {{b}, {.lr = 0.5}}});
  nn::LRScheduler scheduler(optimizer, nn::step_lr(2, 0.5));
  for (int t = 0; t < 5; ++t) {
    run_step(optimizer, a, 0);
    scheduler.step();
  }
  CHECK(optimizer.lr(0) == 0.25);
  CHECK(optimizer.lr(1) == 0.125);

  nn::SGD resumed({{{start(DType::f32)}, {.lr = 9}}, {{start(DType::f32)}, {.lr = 9}}});
  resumed.load_state_dict(optimizer.state_dict());
  CHECK(resumed.setting("momentum", 0) == 0.5);
  CHECK(resumed.lr(1) == 0.125);
  nn::LRScheduler later(resumed, nn::step_lr(2, 0.5));
  later.set_steps(scheduler.steps());
  CHECK(resumed.lr(0) == 0.25);
  later.step();
  CHECK(resumed.lr(0) == 0.125);
  CHECK(resumed.lr(1) == 0.0625);

  nn::SGD other({{{start(DType::f32), start(DType::f32)}, {.momentum = 0.5}}});
  const std::string message = error_of([&] { other.load_state_dict(optimizer.state_dict()); });
  check_has(message, "wrong: group 0 has 2 parameters, the saved one 1");
  check_has(message, "unexpected: groups.1.lr f64 []");
}

TEST_CASE("a momentum that changed since the state was made is saved and loaded") {
  for (const double before : {0.9, 0.0}) {
    const double after = 0.9 - before;
    const Tensor p = start(DType::f32), q = start(DType::f32);
    nn::SGD optimizer({p}, {.lr = 0.1, .momentum = before}), resumed({q}, {.lr = 0.1});
    run_step(optimizer, p, 0);
    optimizer.set_setting("momentum", after);
    resumed.load_state_dict(optimizer.state_dict());
    q.copy_(p.detach());
    for (int t = 1; t < 3; ++t) {
      run_step(optimizer, p, t);
      run_step(resumed, q, t);
    }
    CHECK(p.to_vector<float>() == q.to_vector<float>());
    CHECK(resumed.setting("momentum") == after);
  }
}

TEST_CASE("a frozen parameter is not trained, decay included, until it is thawed") {
  const Tensor p = start(DType::f32), q = start(DType::f32);
  nn::AdamW optimizer({p, q}, {.lr = 0.1, .weight_decay = 0.5});
  p.set_requires_grad(false);
  sum(p * q).backward();
  optimizer.step();
  CHECK(p.to_vector<float>() == start(DType::f32).to_vector<float>());
  CHECK(q.to_vector<float>() != p.to_vector<float>());
  p.set_requires_grad();
  sum(p * q).backward();
  optimizer.step();
  CHECK(p.to_vector<float>() != start(DType::f32).to_vector<float>());
}

TEST_CASE("a plateau goes on after loading, and refuses what makes no sense") {
  nn::SGD optimizer({start(DType::f32)}, {.lr = 1});
  nn::ReduceLROnPlateau plateau(optimizer, {.factor = 0.5, .patience = 1});
  plateau.step(3);
  plateau.step(4);
  CHECK(plateau.best() == 3);
  nn::ReduceLROnPlateau later(optimizer, {.factor = 0.5, .patience = 1});
  later.load_state_dict(plateau.state_dict());
  later.step(3.5);
  CHECK(optimizer.lr() == 0.5);
  check_has(error_of([&] { nn::ReduceLROnPlateau(optimizer, {.factor = 1}); }),
            "expected a factor in [0, 1)");
  check_has(error_of([&] { later.load_state_dict({}); }), "missing: best f64 []");
}

TEST_CASE("a state that does not fit is refused with all differences, and nothing changes") {
  const Tensor p = start(DType::f32);
  nn::Adam optimizer({p}, {.lr = 0.5});
  const std::string message = error_of([&] {
    optimizer.load_state_dict({{"groups.0.beta1", Tensor::scalar(0.9)},
                               {"groups.0.beta2", Tensor::scalar(2.0)},
                               {"groups.0.eps", Tensor::scalar(1e-8)},
                               {"groups.0.weight_decay", Tensor::scalar(0.0)},
                               {"groups.0.parameters", Tensor::scalar<std::int64_t>(1)},
                               {"0.step", Tensor::scalar<std::int64_t>(1)},
                               {"0.exp_avg", Tensor::zeros({4})},
                               {"1.step", Tensor::scalar<std::int64_t>(1)}});
  });
  check_has(message, "Adam: load_state_dict: 5 differences");
  check_has(message, "missing: groups.0.lr f64 []");
  check_has(message, "wrong: group 0: Adam: beta2: expected a value from 0 to below 1, got 2");
  check_has(message, "wrong: 0.exp_avg: expected f32 [3], got f32 [4]");
  check_has(message, "missing: 0.exp_avg_sq f32 [3]");
  check_has(message, "unexpected: 1.step i64 []");
  CHECK(optimizer.lr() == 0.5);
  CHECK(optimizer.setting("beta2") == 0.999);
  CHECK(optimizer.state_dict().size() == 6);
}
