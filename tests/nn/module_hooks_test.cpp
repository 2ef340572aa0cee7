// SPDX-License-Identifier: Apache-2.0
// Hooks round any forward, before and after a module's part of a backward.
#include <peal/autograd/anomaly.h>
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/ops/ops.h>
#include <peal/nn/layers/attention.h>
#include <peal/nn/layers/linear.h>
#include <peal/nn/layers/recurrent.h>
#include <peal/nn/layers/sequential.h>
#include <peal/nn/models/gpt.h>
#include <peal/nn/module.h>
#include <peal/tests/errors.h>

#include <doctest/doctest.h>

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

using namespace peal;
using testing::error_of;

namespace {

// y = a * w + b, and what else comes out.
struct TwoInputs : nn::Module {
  Tensor w = add_parameter("w", full({2}, 3.));
  std::pair<Tensor, Tensor> both(const Tensor& a, const Tensor& b, double scale) {
    return {a * w + b, b * scale};
  }
  Tensor one(const Tensor& a, const Tensor& b) const { return a * w + b; }
  Tensor operator()(const Tensor& a, const Tensor& b) { return call(&TwoInputs::one, a, b); }
};

Tensor leaf(double value) { return full({2}, value).set_requires_grad(); }
using Floats = std::vector<float>;
Floats values_of(const Tensor& x) { return x.to_vector<float>(); }

}  // namespace

TEST_CASE("forward hooks see all tensors of any forward, and may exchange them") {
  TwoInputs net;
  std::vector<std::size_t> counts;
  net.register_forward_pre_hook([&](nn::Module&, const Tensors& inputs) -> nn::Module::Replaced {
    counts.push_back(inputs.size());
    return Tensors{inputs[0], inputs[1] * 10.0};
  });
  net.register_forward_hook([&](nn::Module& module, const Tensors& inputs,
                                const Tensors& outputs) -> nn::Module::Replaced {
    counts.push_back(inputs.size());
    counts.push_back(outputs.size());
    CHECK(module.class_name().find("TwoInputs") != std::string::npos);
    CHECK(values_of(inputs[1]) == Floats{20, 20});
    return Tensors{outputs[0], outputs[1] + 1.0};
  });
  const auto [y, z] = net.call(&TwoInputs::both, full({2}, 1.), full({2}, 2.), 0.5);
  CHECK(counts == std::vector<std::size_t>{2, 2, 2});
  CHECK(values_of(y) == Floats{23, 23});
  CHECK(values_of(z) == Floats{11, 11});
}

TEST_CASE("call goes to the class that a plain handle holds, or says that it holds another") {
  TwoInputs net;
  nn::Module any = net;
  int hooks = 0;
  net.register_forward_pre_hook([&](nn::Module&, const Tensors&) -> nn::Module::Replaced {
    ++hooks;
    return std::nullopt;
  });
  CHECK(values_of(any.call(&TwoInputs::one, full({2}, 1.), full({2}, 2.))) == Floats{5, 5});
  CHECK(values_of(net(full({2}, 1.), full({2}, 2.))) == Floats{5, 5});
  CHECK(hooks == 2);
  CHECK(values_of(any.call([](const Tensor& x) { return x * 2.0; }, full({2}, 4.))) ==
        Floats{8, 8});
  CHECK(hooks == 3);
  nn::Module other = nn::Linear(2, 2);
  const std::string error =
      error_of([&] { other.call(&TwoInputs::one, full({2}, 1.), full({2}, 2.)); });
  CHECK(error.find("TwoInputs was asked of peal::nn::Linear") != std::string::npos);
}

TEST_CASE("hooks of one tensor are forward hooks of the first") {
  TwoInputs net;
  net.add_pre_hook([](nn::Module&, const Tensor& a) { return a * 2.0; });
  net.add_hook([](nn::Module&, const Tensor&, const Tensor& y) { return y + 1.0; });
  CHECK(values_of(net(full({2}, 1.), full({2}, 2.))) == Floats{9, 9});
}

TEST_CASE("backward hooks run before and after a module's part of a backward") {
  nn::Sequential net(nn::Linear(2, 2), nn::Linear(2, 2));
  std::string order;
  nn::Module first = net.child("0"), second = net.child("1");
  for (const auto& [name, module] : {std::pair{'1', first}, {'2', second}}) {
    nn::Module here = module;
    here.register_full_backward_pre_hook(
        [&order, name = name](nn::Module&, const Tensors& grads) -> nn::Module::Replaced {
          CHECK(grads.size() == 1);
          order += '(';
          order += name;
          return std::nullopt;
        });
    here.register_full_backward_hook(
        [&order, name = name](nn::Module&, const Tensors& inputs,
                              const Tensors& outputs) -> nn::Module::Replaced {
          CHECK(inputs.size() == 1);
          CHECK(inputs[0].shape() == Shape{3, 2});
          CHECK(outputs[0].shape() == Shape{3, 2});
          order += name;
          order += ')';
          return std::nullopt;
        });
    here.parameters()[0].grad_slot().add_hook([&order](const Tensor&) { order += 'w'; });
  }
  const Tensor x = ones({3, 2}).set_requires_grad();
  sum(net(x)).backward();
  CHECK(order == "(2w2)(1w1)");
}

TEST_CASE("a backward hook may exchange gradients") {
  TwoInputs net;
  const Tensor a = leaf(1), b = leaf(2);
  const auto pre = net.register_full_backward_pre_hook(
      [](nn::Module&, const Tensors& grads) -> nn::Module::Replaced {
        return Tensors{grads[0] * 2.0};
      });
  net.register_full_backward_hook(
      [](nn::Module&, const Tensors& inputs, const Tensors& outputs) -> nn::Module::Replaced {
        if (!inputs[0].defined()) return std::nullopt;
        CHECK(values_of(outputs[0]) == Floats{2, 2});
        return Tensors{inputs[0] * 10.0, Tensor()};
      });
  sum(net(a, b)).backward();
  CHECK(values_of(net.w.grad()) == Floats{2, 2});
  CHECK(values_of(a.grad()) == Floats{60, 60});
  CHECK(!b.grad().defined());
  net.remove_hook(pre);
  net.w.zero_grad();
  sum(net(a.detach(), b.detach())).backward();
  CHECK(values_of(net.w.grad()) == Floats{1, 1});
}

TEST_CASE("without an input that wants a gradient both backward hooks run with the outputs'") {
  TwoInputs net;
  std::string order;
  net.register_full_backward_pre_hook([&](nn::Module&, const Tensors&) -> nn::Module::Replaced {
    order += 'p';
    return std::nullopt;
  });
  net.register_full_backward_hook(
      [&](nn::Module&, const Tensors& inputs, const Tensors& outputs) -> nn::Module::Replaced {
        order += 'b';
        CHECK(inputs.size() == 2);
        CHECK(!inputs[0].defined());
        CHECK(outputs[0].defined());
        return std::nullopt;
      });
  sum(net(full({2}, 1.), full({2}, 2.))).backward();
  CHECK(order == "pb");
  const NoGrad guard;
  net(full({2}, 1.), full({2}, 2.));
  CHECK(order == "pb");
}

TEST_CASE("a hook that gives another number of tensors is an error") {
  TwoInputs net;
  net.register_forward_pre_hook(
      [](nn::Module&, const Tensors&) -> nn::Module::Replaced { return Tensors{full({2}, 1.)}; });
  CHECK(error_of([&] { net(full({2}, 1.), full({2}, 2.)); }).find("a hook gave 1 inputs for 2") !=
        std::string::npos);
}

TEST_CASE("a forward that throws leaves nothing behind in a module with backward hooks") {
  struct Fragile : nn::Module {
    nn::Linear fc = add("fc", nn::Linear(2, 2));
    Tensor forward(const Tensor& x) override {
      const Tensor y = fc(x);
      throw Error("planted");
      return y;
    }
  };
  std::weak_ptr<Node> node;
  std::weak_ptr<Storage> weight;
  {
    Fragile net;
    net.register_full_backward_hook(
        [](nn::Module&, const Tensors&, const Tensors&) { return nn::Module::Replaced(); });
    const Tensor x = leaf(1) * 2.0;
    node = x.body().node;
    weight = net.fc.weight.storage();
    CHECK(error_of([&] { net(reshape(x, {1, 2})); }) == "planted");
  }
  CHECK(node.expired());
  CHECK(weight.expired());
}

TEST_CASE("hooks of layers run where their parent would compute with their weights itself") {
  nn::GptMlp mlp(4, GeluApproximation::tanh);
  const Tensor x = randn({3, 4});
  const Tensor without = mlp(x).detach();
  std::string order;
  const auto forward =
      mlp.c_fc.register_forward_pre_hook([&](nn::Module&, const Tensors&) -> nn::Module::Replaced {
        order += 'f';
        return std::nullopt;
      });
  CHECK(values_of(mlp(x)) == values_of(without));
  CHECK(order == "f");
  mlp.c_fc.remove_hook(forward);
  mlp.c_proj.register_full_backward_hook(
      [&](nn::Module&, const Tensors&, const Tensors&) -> nn::Module::Replaced {
        order += 'b';
        return std::nullopt;
      });
  sum(mlp(x)).backward();
  CHECK(order == "fb");
}

TEST_CASE("attention to others runs hooks where the module is called") {
  nn::MultiheadAttention attention(4, 2, {.batch_first = true});
  const Tensor queries = randn({2, 3, 4}), keys = randn({2, 5, 4});
  int calls = 0;
  attention.register_forward_hook(
      [&](nn::Module&, const Tensors& inputs, const Tensors& outputs) -> nn::Module::Replaced {
        CHECK(inputs.size() == 3);
        CHECK(outputs.size() == 1);
        ++calls;
        return std::nullopt;
      });
  CHECK(values_of(attention(queries, keys, keys)) ==
        values_of(attention.attend(queries, keys, keys)));
  CHECK(calls == 1);
}

TEST_CASE("hooks see what a forward gives in a struct, and go into its backward") {
  nn::LSTM lstm(3, 2);
  nn::GRU gru(3, 2);
  const Tensor x = ones({4, 1, 3});
  std::vector<std::size_t> inputs, outputs, gradients;
  const auto count = [&](nn::Module& module) {
    module.register_forward_hook(
        [&](nn::Module&, const Tensors& in, const Tensors& out) -> nn::Module::Replaced {
          inputs.push_back(in.size());
          outputs.push_back(out.size());
          Tensors others = out;
          others[0] = others[0] * 0.0;
          return others;
        });
    module.register_full_backward_pre_hook(
        [&](nn::Module&, const Tensors& grads) -> nn::Module::Replaced {
          gradients.push_back(grads.size());
          return std::nullopt;
        });
  };
  count(lstm);
  count(gru);
  const auto [output, h, c] = lstm.call(&nn::LSTM::unroll, x, Tensor(), Tensor());
  CHECK(values_of(output) == Floats(8, 0));
  CHECK(values_of(c) != Floats(2, 0));
  (sum(h) + sum(c)).backward();
  const auto result = gru.call(&nn::GRU::unroll, x, ones({1, 1, 2}));
  sum(result.h).backward();
  CHECK(inputs == std::vector<std::size_t>{3, 2});
  CHECK(outputs == std::vector<std::size_t>{3, 2});
  CHECK(gradients == std::vector<std::size_t>{3, 2});
}

namespace {

struct Shown {
  Tensor a;
  std::vector<std::pair<std::string, Tensor>> more;
  auto fields() { return std::tie(a, more); }
};
struct Hidden {
  Tensor a;
};
struct Gives : nn::Module {
  Shown shown(const Tensor& x) { return {x, {{"one", x + 1.0}, {"two", x + 2.0}}}; }
  std::optional<Tensor> perhaps(const std::map<std::string, Tensor>& named) {
    return named.empty() ? std::nullopt : std::optional(named.begin()->second);
  }
  double number(const Tensor& x) { return x.item<double>(); }
};

}  // namespace

TEST_CASE("hooks find tensors in structs that show their fields, lists, maps and optionals") {
  Gives net;
  std::vector<std::size_t> counts;
  net.register_forward_hook(
      [&](nn::Module&, const Tensors& in, const Tensors& out) -> nn::Module::Replaced {
        counts.push_back(in.size());
        counts.push_back(out.size());
        Tensors others;
        for (const Tensor& each : out) others.push_back(each * 10.0);
        return others;
      });
  const Shown shown = net.call(&Gives::shown, full({}, 1.));
  CHECK(shown.a.item<float>() == 10);
  CHECK(shown.more[1].second.item<float>() == 30);
  using Named = std::map<std::string, Tensor>;
  CHECK(net.call(&Gives::perhaps, Named{{"x", full({}, 2.)}})->item<float>() == 20);
  CHECK(!net.call(&Gives::perhaps, Named{}));
  CHECK(net.call(&Gives::number, full({}, 3.)) == 3);
  CHECK(counts == std::vector<std::size_t>{1, 3, 1, 1, 0, 0, 1, 0});
  // Others do not compile, hooks or not.
  static_assert(nn::ShowsTensors<Shown> && nn::ShowsTensors<std::tuple<Shown, int>>);
  static_assert(!nn::ShowsTensors<Hidden> && !nn::ShowsTensors<std::vector<Hidden>>);
}

TEST_CASE("anomaly detection says in which module the operation was") {
  struct Root : nn::Module {
    Tensor forward(const Tensor& x) override { return sqrt(x) * 0.0; }
  };
  struct Net : nn::Module {
    nn::Sequential layers = add("layers", nn::Sequential(nn::Linear(2, 2), Root()));
    Tensor forward(const Tensor& x) override { return layers(x); }
  };
  Net net;
  const Tensor x = Tensor::zeros({1, 2});
  {
    const NoGrad guard;
    for (const auto& [name, parameter] : net.named_parameters()) parameter.zero_();
  }
  const DetectAnomaly guard;
  const std::string told = error_of([&] { sum(net(x)).backward(); });
  CAPTURE(told);
  CHECK(told.find("Net.layers.1) gave 2 NaNs in the gradient of its input 0, f32 [1, 2]") !=
        std::string::npos);
  CHECK(context().where.empty());
}
