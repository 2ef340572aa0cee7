// SPDX-License-Identifier: Apache-2.0
// Modules: names and order, sharing between handles, loading, replacement, hooks, modes, types.
#include <peal/autograd/ops/ops.h>
#include <peal/nn/models/basic_net.h>
#include <peal/nn/models/gpt.h>
#include <peal/nn/models/mlp.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include <algorithm>

using namespace peal;
using namespace peal::testing;

namespace {

struct Scaled : nn::Module {
  nn::Linear fc = add("fc", nn::Linear(2, 3));
  Tensor scale = add_parameter("scale", full({3}, 2.0));
  Tensor count = add_buffer("count", Tensor::scalar<std::int64_t>(0));
  Tensor forward(const Tensor& x) override { return fc(x) * scale; }
};

// Stands where a child stood, and keeps that child as its own.
struct Doubled : nn::Module {
  explicit Doubled(nn::Module inside) : inner(add("inner", inside)) {}
  nn::Module inner;
  Tensor forward(const Tensor& x) override { return inner(x) * 2.0; }
};

struct Tied : nn::Module {
  nn::Linear a = add("a", nn::Linear(2, 2));
  Tensor same = add_parameter("same", a.weight);
};

struct TwoArguments : nn::Module {
  using Module::forward;
  Tensor forward(const Tensor& x, const Tensor& y) { return x + y; }
};

// A handle to another module with something of its own, as DistributedDataParallel is.
struct Wrapper : nn::Module {
  explicit Wrapper(nn::Module inside) : Module(std::move(inside)) {}
};

// Its child is not registered.
struct Forgetful : nn::Module {
  explicit Forgetful(bool trained = true) { fc.requires_grad_(trained); }
  nn::Linear fc{2, 3};
  nn::ReLU relu;  // has no parameters, and nothing to lose
  Tensor forward(const Tensor& x) override { return relu(fc(x)); }
};

struct ByValue : nn::Module {
  Tensor forward(Tensor x) { return x; }
};
struct Constant : nn::Module {
  Tensor forward(const Tensor& x) const { return x; }
};
static_assert(nn::HidesForward<ByValue> && nn::HidesForward<Constant>);
static_assert(!nn::HidesForward<Scaled> && !nn::HidesForward<TwoArguments>);
static_assert(!nn::HidesForward<Wrapper> && !nn::HidesForward<Tied>);

std::vector<std::string> names_of(const NamedTensors& list) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : list) names.push_back(name);
  return names;
}

using Names = std::vector<std::string>;

Tensor input() { return Tensor::from<float>({1.0f, -2.0f}, {1, 2}); }

// y * factor, as computed.
std::vector<float> times(std::vector<float> y, float factor) {
  for (float& value : y) value *= factor;
  return y;
}

}  // namespace

TEST_CASE("a plain Module that is assigned a derived one holds that class") {
  nn::Module any = nn::ReLU();
  any = nn::Linear(2, 3);
  CHECK(any(ones({1, 2})).shape() == Shape{1, 3});
}

TEST_CASE("BasicNet has PyTorch's keys, order, shapes and number of parameters") {
  const nn::BasicNet net;
  const std::vector<std::pair<std::string, Shape>> expected{
      {"conv1.weight", {32, 1, 3, 3}},  {"conv1.bias", {32}},
      {"conv2.weight", {64, 32, 3, 3}}, {"conv2.bias", {64}},
      {"fc1.weight", {128, 9216}},      {"fc1.bias", {128}},
      {"fc2.weight", {10, 128}},        {"fc2.bias", {10}}};
  const NamedTensors state = net.state_dict();
  REQUIRE(state.size() == expected.size());
  std::int64_t parameters = 0;
  for (std::size_t i = 0; i < state.size(); ++i) {
    CHECK(state[i].first == expected[i].first);
    CHECK(state[i].second.shape() == expected[i].second);
    parameters += state[i].second.numel();
  }
  CHECK(parameters == 1199882);
  CHECK(names_of(net.named_parameters()) == names_of(state));
}

TEST_CASE("a module's own tensors come before its children's, and buffers are no parameters") {
  const Scaled net;
  CHECK(names_of(net.state_dict()) == Names{"scale", "count", "fc.weight", "fc.bias"});
  CHECK(names_of(net.named_parameters()) == Names{"scale", "fc.weight", "fc.bias"});
  CHECK(names_of(net.named_buffers()) == Names{"count"});
  CHECK(net.scale.requires_grad());
  CHECK_FALSE(net.count.requires_grad());
}

TEST_CASE("a buffer that is not persistent is moved and named, but neither saved nor loaded") {
  struct Masked : nn::Module {
    Tensor mask = add_buffer("mask", Tensor::zeros({2}), false);
    Tensor seen = add_buffer("seen", Tensor::zeros({1}));
  };
  struct Outer : nn::Module {
    Masked inner = add("inner", Masked());
  };
  Outer net;
  CHECK(names_of(net.named_buffers()) == Names{"inner.mask", "inner.seen"});
  CHECK(names_of(net.state_dict()) == Names{"inner.seen"});
  net.to(DType::f64);
  CHECK(net.inner.mask.dtype() == DType::f64);
  const auto keys =
      net.load_state_dict({{"inner.seen", full({1}, 3.)}, {"inner.mask", full({2}, 5.)}}, false);
  CHECK(keys.missing_keys.empty());
  CHECK(keys.unexpected_keys == Names{"inner.mask"});
  CHECK(net.inner.seen.to_vector<double>() == std::vector<double>{3});
  CHECK(net.inner.mask.to_vector<double>() == std::vector<double>{0, 0});
}

TEST_CASE("Sequential numbers its children") {
  const nn::Sequential net = nn::mlp({4, 3, 2});
  CHECK(names_of(net.state_dict()) == Names{"1.weight", "1.bias", "3.weight", "3.bias"});
  nn::Sequential nested(nn::Sequential(nn::Flatten(), nn::Linear(4, 3)), nn::ReLU());
  CHECK(names_of(nested.state_dict()) == Names{"0.1.weight", "0.1.bias"});
  CHECK(nested(Tensor::zeros({5, 2, 2})).shape() == Shape{5, 3});
}

TEST_CASE("a tied tensor is trained once and saved by each name") {
  const Tied net;
  CHECK(names_of(net.named_parameters()) == Names{"same", "a.bias"});
  CHECK(names_of(net.state_dict()) == Names{"same", "a.weight", "a.bias"});
}

TEST_CASE("copies share parameters, and a plain Module keeps the class") {
  Scaled net;
  nn::Module any = net;
  Scaled copy = net;
  CHECK(any.same_as(net));
  CHECK(any(input()).to_vector<float>() == net(input()).to_vector<float>());
  fill_(net.scale, 0.0);
  CHECK(any(input()).to_vector<float>() == std::vector<float>{0, 0, 0});
  CHECK(copy(input()).to_vector<float>() == std::vector<float>{0, 0, 0});
  CHECK(any.as<Scaled>() != nullptr);
  CHECK(any.as<nn::Linear>() == nullptr);
  CHECK(any.class_name().find("Scaled") != std::string::npos);
  CHECK(net.child("fc").class_name() == "peal::nn::Linear");
}

TEST_CASE("gradients reach every parameter and zero_grad takes them away") {
  Scaled net;
  sum(net(input())).backward();
  for (const auto& [name, parameter] : net.named_parameters()) {
    INFO(name);
    REQUIRE(parameter.grad().defined());
    CHECK(parameter.grad().shape() == parameter.shape());
  }
  CHECK(net.fc.weight.grad().to_vector<float>() == std::vector<float>{2, -4, 2, -4, 2, -4});
  net.zero_grad();
  for (const Tensor& parameter : net.parameters()) CHECK_FALSE(parameter.grad().defined());
  net.requires_grad_(false);
  CHECK_FALSE(net(input()).requires_grad());
}

TEST_CASE("loading copies into the module, and converts floating types") {
  Scaled from, to;
  fill_(from.scale, 3.0);
  to.load_state_dict(from.state_dict());
  CHECK(to(input()).to_vector<float>() == from(input()).to_vector<float>());
  CHECK(to.scale.raw() != from.scale.raw());

  from.to(DType::f64);
  to.load_state_dict(from.state_dict());
  CHECK(to.scale.dtype() == DType::f32);
  CHECK(to.scale.to_vector<float>() == std::vector<float>{3, 3, 3});
}

TEST_CASE("loading what does not fit lists every difference and changes nothing") {
  Scaled net;
  const auto before = net.scale.to_vector<float>();
  const NamedTensors wrong{{"scale", full({3}, 9.0)},
                           {"count", Tensor::scalar(1.0f)},
                           {"fc.weight", Tensor::zeros({3, 4})},
                           {"fc2.weight", Tensor::zeros({1})},
                           {"fc2.bias", Tensor::zeros({1})}};
  const std::string message = error_of([&] { net.load_state_dict(wrong); });
  check_has(message, "Scaled: 5 differences");
  check_has(message, "wrong type: count: expected i64, got f32");
  check_has(message, "wrong shape: fc.weight: expected [3, 2], got [3, 4]");
  check_has(message, "missing: fc.bias f32 [3]");
  check_has(message, "unexpected: fc2.weight f32 [1]");
  check_has(message, "unexpected: fc2.bias f32 [1]");
  CHECK(net.scale.to_vector<float>() == before);

  check_has(error_of([&] { net.load_state_dict(wrong, false); }), "2 differences");
  const nn::IncompatibleKeys passed_over =
      net.load_state_dict({{"scale", full({3}, 9.0)}, {"other", Tensor::zeros({1})}}, false);
  CHECK(passed_over.missing_keys == Names{"count", "fc.weight", "fc.bias"});
  CHECK(passed_over.unexpected_keys == Names{"other"});
  CHECK(net.scale.to_vector<float>() == std::vector<float>{9, 9, 9});
}

TEST_CASE("a replaced child is called, listed and saved in place of the old one") {
  Scaled net;
  const auto before = net(input()).to_vector<float>();
  net.replace_child("fc", Doubled(net.fc));
  CHECK(net(input()).to_vector<float>() == times(before, 2));
  CHECK(names_of(net.state_dict()) == Names{"scale", "count", "fc.inner.weight", "fc.inner.bias"});
  nn::Module any = net;
  CHECK(any(input()).to_vector<float>() == times(before, 2));

  net.replace_child("fc.inner", Doubled(net.child("fc.inner")));
  CHECK(any(input()).to_vector<float>() == times(before, 4));
  CHECK(net.child("fc.inner.inner").same_as(nn::Module(net.child("fc.inner").child("inner"))));

  nn::Sequential layers{nn::ReLU(), nn::ReLU()};
  layers.replace_child("1", nn::Flatten(0));
  CHECK(layers(input()).shape() == Shape{2});
}

TEST_CASE("a tied tensor comes by any of its names") {
  Tied from, to;
  fill_(from.same, 3.0);
  for (const std::string name : {"same", "a.weight"}) {
    INFO(name);
    fill_(to.same, 0.0);
    NamedTensors state = from.state_dict();
    std::erase_if(state, [&](const auto& entry) { return entry.first == name; });
    REQUIRE(state.size() == 2);
    to.load_state_dict(state);
    CHECK(to.a.weight.to_vector<float>() == std::vector<float>(4, 3));
  }
  check_has(error_of([&] {
              to.load_state_dict({{"a.bias", Tensor::zeros({2})}});
            }),
            "2 differences\n  missing: same f32 [2, 2]\n  missing: a.weight f32 [2, 2]");
}

TEST_CASE("of a tied tensor's names that have other values the last in the model counts") {
  Tied net;
  NamedTensors state{
      {"a.weight", full({2, 2}, 2.0)}, {"same", full({2, 2}, 1.0)}, {"a.bias", Tensor::zeros({2})}};
  for (const bool turned : {false, true}) {
    if (turned) std::swap(state[0], state[1]);
    fill_(net.same, 0.0);
    net.load_state_dict(state);
    CHECK(net.same.to_vector<float>() == std::vector<float>(4, 2));
  }
}

TEST_CASE("a module is found in whatever wraps it") {
  Wrapper wrapper{Scaled()};
  nn::Module any = wrapper;
  CHECK(wrapper.as<Scaled>() != nullptr);
  CHECK(wrapper.as<Wrapper>() != nullptr);
  REQUIRE(any.as<Scaled>() != nullptr);
  CHECK(any.as<Wrapper>() != nullptr);
  CHECK(any.as<Tied>() == nullptr);
  nn::Module outer = Wrapper{any};
  REQUIRE(outer.as<Scaled>() != nullptr);
  CHECK(outer.as<Scaled>()->scale.raw() == wrapper.as<Scaled>()->scale.raw());
}

TEST_CASE("a registered child is replaced by name, not by assignment") {
  Scaled net;
  const auto before = net(input()).to_vector<float>();
  check_has(
      error_of([&] { net.fc = nn::Linear(2, 3); }),
      "a registered peal::nn::Linear is assigned another peal::nn::Linear: the module that it "
      "is a child of would go on with the old one; put the new one in its place with "
      "replace_child(name, module)");
  CHECK(net(input()).to_vector<float>() == before);
  CHECK(net.fc.same_as(net.child("fc")));
  Scaled other;
  other = net;  // whole modules are assigned as ever
  CHECK(other(input()).to_vector<float>() == before);
  CHECK(other.fc.same_as(net.fc));
  net.fc = other.fc;
  CHECK(net(input()).to_vector<float>() == before);
}

TEST_CASE("a registered child is not assigned another model's, but with the whole model") {
  struct Outer : nn::Module {
    Scaled inner = add("inner", Scaled());
    nn::Linear head = add("head", nn::Linear(3, 3));
    Tensor forward(const Tensor& x) override { return head(inner(x)); }
  };
  Outer a, b;
  const auto of_a = a(input()).to_vector<float>(), of_b = b(input()).to_vector<float>();
  for (const auto& error :
       {error_of([&] { a.head = b.head; }), error_of([&] { a.inner.fc = b.inner.fc; }),
        error_of([&] { a.inner = b.inner; })}) {
    check_has(error, "put the new one in its place with replace_child(name, module)");
  }
  CHECK(a(input()).to_vector<float>() == of_a);
  nn::Module kept = a;  // the model that `a` was goes on
  a = b;
  CHECK(a(input()).to_vector<float>() == of_b);
  CHECK(kept(input()).to_vector<float>() == of_a);
  sum(a(input())).backward();
  for (const Tensor& parameter : a.parameters()) CHECK(parameter.grad().defined());
  for (const Tensor& parameter : kept.parameters()) CHECK(!parameter.grad().defined());
  std::swap(a, b);
  CHECK(b.inner.fc.same_as(b.child("inner.fc")));
}

TEST_CASE("the handle of a replaced child is registered elsewhere as what took its place") {
  Scaled net, other;
  const nn::Linear fresh(2, 3);
  net.replace_child("fc", fresh);
  struct Holder : nn::Module {
    Tensor forward(const Tensor& x) override { return x; }
  } holder;
  holder.add("shared", net.fc);
  CHECK(holder.child("shared").same_as(fresh));
  other.replace_child("fc", net.fc);
  CHECK(other.child("fc").same_as(fresh));
  CHECK(other(input()).shape() == net(input()).shape());
  CHECK(other.fc.same_as(fresh));
}

TEST_CASE("a module that nobody registered is told when it is called, once") {
  Forgetful net;
  const std::string told = stderr_of([&] {
    net(input());
    net(input());
  });
  check_has(told,
            "Forgetful calls a peal::nn::Linear with 2 parameters that is a child of no module");
  check_has(told, "register it with add(name, module)");
  CHECK(std::count(told.begin(), told.end(), '\n') == 1);

  struct OwnForward : nn::Module {
    nn::Linear forgotten{2, 3};
    Tensor both(const Tensor& a, const Tensor& b) { return forgotten(a + b); }
  } own;
  check_has(stderr_of([&] { own.call(&OwnForward::both, input(), input()); }),
            "OwnForward calls a peal::nn::Linear with 2 parameters that is a child of no module");

  Scaled registered;
  Forgetful frozen(false), evaluated;
  nn::Sequential layers{nn::Linear(2, 3), Wrapper{nn::Linear(3, 2)}};
  CHECK(stderr_of([&] {
          registered(input());
          registered.replace_child("fc", Doubled(registered.fc));
          registered(input());
          frozen(input());
          layers(input());
          nn::Linear(2, 3)(input());
          const NoGrad guard;
          evaluated(input());
        }).empty());
}

TEST_CASE("a module and all below it are listed once, parents first") {
  Scaled net;
  net.replace_child("fc", Doubled(net.fc));
  Names names;
  for (auto& [name, module] : net.named_modules())
    names.push_back(name + ":" + module.class_name());
  REQUIRE(names.size() == 3);
  CHECK(names[0].front() == ':');
  check_has(names[0], "Scaled");
  check_has(names[1], "fc:");
  check_has(names[1], "Doubled");
  CHECK(names[2] == "fc.inner:peal::nn::Linear");
}

TEST_CASE("wrong names are refused") {
  Scaled net;
  check_has(error_of([&] { net.add("fc", nn::ReLU()); }), "'fc' is registered already");
  check_has(error_of([&] { net.add("scale", nn::ReLU()); }), "'scale' is registered already");
  check_has(error_of([&] { net.add_buffer("fc", Tensor::zeros({1})); }), "registered already");
  check_has(error_of([&] { net.add_parameter("a.b", Tensor::zeros({1})); }), "got 'a.b'");
  check_has(error_of([&] { net.add("", nn::ReLU()); }), "must not be empty");
  check_has(error_of([&] { net.child("conv"); }), "no child 'conv': 'conv' is not one of: fc");
  check_has(error_of([&] { net.child("fc.x"); }), "no child 'fc.x': 'x' is not one of: (none)");
}

TEST_CASE("a module without a one-tensor forward says so") {
  TwoArguments net;
  CHECK(net.forward(input(), input()).to_vector<float>() == std::vector<float>{2, -4});
  nn::Module any = net;
  check_has(error_of([&] { any(input()); }), "TwoArguments has no forward(const Tensor&)");
  check_has(error_of([&] { any(input()); }), "or its tensor by value");
}

TEST_CASE("hooks see input and output, may change them, and can be removed") {
  Scaled net;
  const auto plain = net(input()).to_vector<float>();
  std::vector<std::string> calls;
  const auto before = net.fc.add_pre_hook([&](nn::Module& module, const Tensor&) {
    calls.push_back("before " + module.class_name());
    return Tensor();
  });
  const auto after = net.fc.add_hook([&](nn::Module&, const Tensor& x, const Tensor& y) {
    calls.push_back("after");
    CHECK(x.shape() == Shape{1, 2});
    return y * 10.0;
  });
  const auto later = net.add_hook([&](nn::Module&, const Tensor&, const Tensor&) {
    calls.push_back("outer");
    return Tensor();
  });
  CHECK(net(input()).to_vector<float>() == times(plain, 10));
  CHECK(calls == Names{"before peal::nn::Linear", "after", "outer"});

  net.fc.remove_hook(after);
  net.remove_hook(later);
  CHECK(net(input()).to_vector<float>() == plain);
  CHECK(calls.size() == 4);
  net.fc.remove_hook(before);
  net.add_pre_hook([](nn::Module&, const Tensor& x) { return x * 0.0; });
  nn::Module any = net;  // hooks are shared too
  CHECK(any(input()).to_vector<float>() == net(Tensor::zeros({1, 2})).to_vector<float>());
}

TEST_CASE("train and eval reach every module below") {
  nn::BasicNet net;
  CHECK(net.training());
  CHECK(net.is_training());
  net.eval();
  CHECK_FALSE(net.training());
  CHECK_FALSE(net.is_training());
  CHECK_FALSE(net.dropout1.training());
  CHECK_FALSE(net.child("dropout2").training());
  net.train();
  CHECK(net.dropout1.training());
}

TEST_CASE("to(f64) changes the parameters that handles already have") {
  Scaled net;
  const auto before = net.scale.to_vector<float>();
  net.to(DType::f64);
  CHECK(net.fc.weight.dtype() == DType::f64);
  CHECK(net.scale.to_vector<double>() == std::vector<double>(before.begin(), before.end()));
  CHECK(net.count.dtype() == DType::i64);
  const Tensor y = net(Tensor::from<double>({1, 2}, {1, 2}));
  CHECK(y.dtype() == DType::f64);
  sum(y).backward();
  CHECK(net.fc.weight.grad().dtype() == DType::f64);
  check_has(error_of([&] { net.to(DType::i64); }), "a model is converted to a floating type");
}

TEST_CASE("a hook may remove itself and add others") {
  nn::Linear linear(2, 2);
  int once = 0, later = 0;
  std::uint64_t self = 0;
  self = linear.add_pre_hook([&](nn::Module& module, const Tensor&) {
    ++once;
    module.remove_hook(self);
    module.add_pre_hook([&](nn::Module&, const Tensor&) {
      ++later;
      return Tensor();
    });
    return Tensor();
  });
  linear.add_pre_hook([&](nn::Module&, const Tensor&) { return Tensor(); });
  for (int i = 0; i < 3; ++i) linear(ones({1, 2}));
  CHECK(once == 1);
  CHECK(later == 2);
}

TEST_CASE("a class made from Linear is called where GPT's mlp would take its weights alone") {
  struct Tenfold : nn::Linear {
    using nn::Linear::Linear;
    Tensor forward(const Tensor& x) override { return nn::Linear::forward(x) * 10.0; }
  };
  nn::GptMlp mlp(4, GeluApproximation::tanh);
  const Tensor x = randn({3, 4});
  const NoGrad guard;
  const auto before = mlp(x).to_vector<float>();
  Tenfold tenfold(16, 4);
  tenfold.load_state_dict(mlp.c_proj.state_dict());
  mlp.replace_child("c_proj", tenfold);
  const auto after = mlp(x).to_vector<float>();
  for (std::size_t i = 0; i < before.size(); ++i) {
    CHECK(after[i] == doctest::Approx(10 * before[i]));
  }
}
