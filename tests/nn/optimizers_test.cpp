// SPDX-License-Identifier: Apache-2.0
// What all optimizers have in common: states that go on bit for bit, masters of parameters in low
// precision, maximize, closures, settings that make no sense. Their formulas are compared with
// PyTorch's by torch_optimizers.
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/ops/ops.h>
#include <peal/nn/nn.h>
#include <peal/tests/errors.h>

#include <functional>
#include <memory>

using namespace peal;
using namespace peal::testing;

namespace {

using Make = std::function<std::unique_ptr<nn::Optimizer>(const nn::Parameters&)>;

template <class O, class Options>
Make make(const Options& options) {
  return [options](const nn::Parameters& p) { return std::make_unique<O>(p, options); };
}

// `up` says that they maximize.
std::vector<std::pair<const char*, Make>> all(bool up) {
  using namespace nn;
  return {{"SGD", make<SGD>(SGDOptions{.lr = 0.1, .momentum = 0.9, .maximize = up})},
          {"Adam", make<Adam>(AdamOptions{.lr = 0.1, .maximize = up})},
          {"amsgrad", make<AdamW>(AdamWOptions{.lr = 0.1, .amsgrad = true, .maximize = up})},
          {"RMSprop", make<RMSprop>(RMSpropOptions{.lr = 0.1, .maximize = up})},
          {"RMSprop, momentum",
           make<RMSprop>(RMSpropOptions{.lr = 0.1, .momentum = 0.9, .maximize = up})},
          {"RMSprop, centered",
           make<RMSprop>(RMSpropOptions{.lr = 0.1, .centered = true, .maximize = up})},
          {"RMSprop, all", make<RMSprop>(RMSpropOptions{0.1, 0.9, 1e-3, 0, 0.9, true, up})},
          {"Adagrad", make<Adagrad>(AdagradOptions{
                          .lr = 0.1, .initial_accumulator_value = 0.5, .maximize = up})},
          {"Adadelta", make<Adadelta>(AdadeltaOptions{.maximize = up})},
          {"Adamax", make<Adamax>(AdamaxOptions{.lr = 0.1, .maximize = up})},
          {"NAdam", make<NAdam>(NAdamOptions{.lr = 0.1, .maximize = up})},
          {"RAdam", make<RAdam>(RAdamOptions{.lr = 0.1, .maximize = up})},
          {"Lion", make<Lion>(LionOptions{.lr = 0.1, .maximize = up})},
          {"LAMB", make<LAMB>(LAMBOptions{.lr = 0.1, .maximize = up})},
          {"LARS", make<LARS>(LARSOptions{.lr = 0.1, .maximize = up})},
          {"Adafactor", make<Adafactor>(AdafactorOptions{.lr = 0.1, .maximize = up})}};
}

// A matrix, a vector and one number, in any floating type exact at first.
NamedTensors start(DType dtype) {
  const Tensor w = Tensor::from<float>({1, -2, 0.5f, 4, 0.25f, -1}, {2, 3});
  NamedTensors list{{"w", cast(w, dtype)},
                    {"b", cast(Tensor::from<float>({-1, 0.5f}, {2}), dtype)},
                    {"s", cast(Tensor::from<float>({2}, {1}), dtype)}};
  for (auto& [name, tensor] : list) tensor = tensor.clone().set_requires_grad();
  return list;
}

// Step number t, with gradients that bf16 holds; s has none at every third step.
void run_step(nn::Optimizer& optimizer, const NamedTensors& list, int t, float sign = 1) {
  for (const auto& [name, p] : list) {
    p.zero_grad();
    if (name == "s" && t % 3 == 2) continue;
    std::vector<float> g;
    for (std::int64_t i = 0; i < p.numel(); ++i) {
      g.push_back(sign * 0.25f * static_cast<float>((5 * t + 3 * i) % 7 - 2));
    }
    p.grad_slot().accumulate(
        cast(Tensor::from(g, {p.numel()}), p.dtype())
            .reshape(std::vector<std::int64_t>(p.shape().begin(), p.shape().end())));
  }
  optimizer.step();
}

std::vector<float> values(const NamedTensors& list) {
  std::vector<float> values;
  for (const auto& [name, p] : list) {
    const std::vector<float> more = cast(p.detach(), DType::f32).to_vector<float>();
    values.insert(values.end(), more.begin(), more.end());
  }
  return values;
}

void copy(const NamedTensors& to, const NamedTensors& from) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i].second.copy_(from[i].second.detach());
}

}  // namespace

TEST_CASE("every optimizer's state goes on bit for bit, in full and in low precision") {
  for (const auto& [name, make] : all(false)) {
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
      CAPTURE(name);
      CAPTURE(concat(dtype));
      const NamedTensors p = start(dtype), q = start(dtype);
      const auto first = make(p), second = make(q);
      for (int t = 0; t < 7; ++t) run_step(*first, p, t);
      CHECK(values(p) != values(start(dtype)));
      copy(q, p);
      second->load_state_dict(first->state_dict());
      for (int t = 7; t < 14; ++t) {
        run_step(*first, p, t);
        run_step(*second, q, t);
      }
      CHECK(values(p) == values(q));
      const NamedTensors one = first->state_dict(), other = second->state_dict();
      REQUIRE(one.size() == other.size());
      for (std::size_t i = 0; i < one.size(); ++i) {
        CAPTURE(one[i].first);
        CHECK(one[i].first == other[i].first);
        CHECK(cast(one[i].second, DType::f64).to_vector<double>() ==
              cast(other[i].second, DType::f64).to_vector<double>());
      }
    }
  }
}

TEST_CASE("a parameter in bf16 has a master that steps as f32 does") {
  for (const auto& [name, make] : all(false)) {
    CAPTURE(name);
    const NamedTensors p = start(DType::f32), low = start(DType::bf16);
    const auto full = make(p), mixed = make(low);
    for (int t = 0; t < 9; ++t) {
      run_step(*full, p, t);
      run_step(*mixed, low, t);
    }
    NamedTensors masters;
    for (const auto& [key, tensor] : mixed->state_dict()) {
      if (key.ends_with(".master")) masters.emplace_back(key, tensor);
    }
    CHECK(values(masters) == values(p));
    for (std::size_t i = 0; i < low.size(); ++i) {
      CHECK(cast(low[i].second, DType::f32).to_vector<float>() ==
            cast(cast(p[i].second, DType::bf16), DType::f32).to_vector<float>());
    }
  }
}

TEST_CASE("maximize is a step along the negative gradients") {
  const auto down = all(false), up = all(true);
  for (std::size_t i = 0; i < down.size(); ++i) {
    CAPTURE(down[i].first);
    const NamedTensors p = start(DType::f32), q = start(DType::f32);
    const auto first = down[i].second(p), second = up[i].second(q);
    for (int t = 0; t < 4; ++t) {
      run_step(*first, p, t, -1);
      run_step(*second, q, t);
    }
    CHECK(values(p) == values(q));
    CHECK(second->setting("maximize") == 1);
    second->set_setting("maximize", 0);
    run_step(*first, p, 4);
    run_step(*second, q, 4);
    CHECK(values(p) == values(q));
  }
}

TEST_CASE("flags are saved where they are set, and an older state loads") {
  const NamedTensors p = start(DType::f32);
  nn::Adam adam(p);
  for (const auto& [key, tensor] : adam.state_dict()) {
    CHECK_FALSE(key.ends_with("amsgrad"));
    CHECK_FALSE(key.ends_with("maximize"));
  }
  run_step(adam, p, 0);
  const NamedTensors old = adam.state_dict();
  adam.set_setting("amsgrad", 1);
  nn::Adam later(start(DType::f32));
  later.load_state_dict(adam.state_dict());
  CHECK(later.setting("amsgrad") == 1);
  later.load_state_dict(old);
  CHECK(later.setting("amsgrad") == 0);
  adam.set_setting("amsgrad", 1);
  run_step(adam, p, 1);  // makes the third tensor
  bool found = false;
  for (const auto& [key, tensor] : adam.state_dict()) found |= key == "w.max_exp_avg_sq";
  CHECK(found);
  check_has(error_of([&] { adam.set_setting("amsgrad", 2); }),
            "Adam: amsgrad: expected 0 or 1, got 2");
}

TEST_CASE("settings that make no sense are refused by name") {
  const NamedTensors p = start(DType::f32);
  const auto refused = [&](const Make& make) { return error_of([&] { make(p); }); };
  using namespace nn;
  check_has(refused(make<RMSprop>(RMSpropOptions{.alpha = 1})),
            "RMSprop: alpha: expected a value from 0 to below 1, got 1");
  check_has(refused(make<Adagrad>(AdagradOptions{.lr_decay = -1})), "Adagrad: lr_decay");
  check_has(refused(make<Adadelta>(AdadeltaOptions{.rho = -0.5})), "Adadelta: rho");
  check_has(refused(make<NAdam>(NAdamOptions{.momentum_decay = -1})), "NAdam: momentum_decay");
  check_has(refused(make<Adafactor>(AdafactorOptions{.beta2_decay = 0.5})),
            "Adafactor: beta2_decay: expected at most 0, got 0.5");
  check_has(refused(make<Adafactor>(AdafactorOptions{.d = 0.5})), "Adafactor: d");
  Adafactor adafactor(p);
  check_has(error_of([&] { adafactor.set_setting("beta2_decay", 1); }), "Adafactor: beta2_decay");
  check_has(refused(make<LBFGS>(LBFGSOptions{.max_iter = 0})), "LBFGS: max_iter");
  check_has(error_of([] { LBFGS(start(DType::f16)); }),
            "LBFGS: parameter w of shape [2, 3] is f16 on cpu; all have to be f32, or all f64");
}

TEST_CASE("a schedule is refused before it sets a rate, and by groups that came after it") {
  nn::Linear net(2, 2);
  const NamedTensors all = net.named_parameters();
  nn::OneCycleOptions ten;
  ten.max_lr = 0.1;
  ten.total_steps = 10;
  nn::Adagrad plain(NamedTensors{all[0]}, {.lr = 0.5});
  CHECK_THROWS_AS(nn::OneCycleLR(plain, ten), Error);
  CHECK(plain.lr(0) == 0.5);
  nn::AdamW optimizer(NamedTensors{all[0]}, {.lr = 0.1});
  nn::OneCycleLR schedule(optimizer, std::vector<double>{0.1}, ten);
  optimizer.add_group(NamedTensors{all[1]}, {.lr = 0.01});
  schedule.step();  // one schedule is for all groups
  nn::AdamW two(NamedTensors{all[0]}, {.lr = 0.1});
  two.add_group(NamedTensors{all[1]}, {.lr = 0.01});
  nn::OneCycleLR of_two(two, std::vector<double>{0.1, 0.01}, ten);
  const Tensor extra = full({2}, 1.0).requires_grad_();
  two.add_group(NamedTensors{{"extra", extra}}, {.lr = 0.01});
  CHECK_THROWS_WITH_AS(of_two.step(),
                       "LRScheduler: it was made for 2 groups, and the optimizer has 3 now; add "
                       "groups before the schedule is made",
                       Error);
}

TEST_CASE("a step with a closure runs it with gradients on and gives its loss") {
  const Tensor x = Tensor::from<float>({3}, {1}).set_requires_grad();
  nn::SGD optimizer({x}, {.lr = 0.25});
  const NoGrad outside;
  const Tensor loss = optimizer.step([&] {
    optimizer.zero_grad();
    const Tensor loss = sum(x * x);
    loss.backward();
    return loss;
  });
  CHECK(loss.item<float>() == 9);
  CHECK(x.item<float>() == 1.5f);
}

TEST_CASE("LBFGS finds the least of a bowl, and its memory goes on bit for bit") {
  for (const bool searches : {false, true}) {
    const auto valley = [](const Tensor& x) {
      const Tensor a = select(x, 0, 0), b = select(x, 0, 1);
      return 10.0 * pow(b - a * a, 2) + pow(1.0 - a, 2);
    };
    const auto run = [&](nn::LBFGS& optimizer, const Tensor& x) {
      return optimizer.step([&] {
        optimizer.zero_grad();
        const Tensor loss = valley(x);
        loss.backward();
        return loss;
      });
    };
    const auto begin = [] { return Tensor::from<double>({-1, 1.5}, {2}).set_requires_grad(); };
    const nn::LBFGSOptions options{
        .lr = searches ? 1 : 0.1, .max_iter = 4, .strong_wolfe = searches};
    const Tensor x = begin(), y = begin();
    nn::LBFGS first({x}, options), second({y}, options);
    for (int t = 0; t < 3; ++t) run(first, x);
    y.copy_(x.detach());
    second.load_state_dict(first.state_dict());
    CHECK(second.evaluations() == first.evaluations());
    for (int t = 0; t < 3; ++t) {
      CHECK(run(first, x).item<double>() == run(second, y).item<double>());
    }
    CHECK(x.to_vector<double>() == y.to_vector<double>());
    for (int t = 0; t < 30; ++t) run(first, x);
    if (searches) CHECK(valley(x).item<double>() < 1e-8);
    check_has(error_of([&] { first.step(); }), "LBFGS: step() wants a closure");
    nn::LBFGS other({Tensor::zeros({3}, DType::f64).set_requires_grad()}, options);
    check_has(error_of([&] { other.load_state_dict(first.state_dict()); }),
              "wrong: groups.0.d: expected f64 [3], got f64 [2]");
    CHECK(other.iterations() == 0);
  }
}
