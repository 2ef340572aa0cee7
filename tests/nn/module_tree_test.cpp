// SPDX-License-Identifier: Apache-2.0
// Trees of modules by PyTorch's names: registration, walks, paths, text, containers, copies.
#include <peal/autograd/ops/ops.h>
#include <peal/nn/nn.h>
#include <peal/tests/errors.h>

#include <fmt/format.h>

#include <sstream>

using namespace peal;
using namespace peal::testing;

namespace {

struct Block : nn::Module {
  nn::Linear fc = register_module("fc", nn::Linear(3, 3));
  Tensor scale = register_parameter("scale", ones({3}), false);
  Tensor seen = register_buffer("seen", Tensor::zeros({1}), false);
  Tensor forward(const Tensor& x) override {
    add_(seen, ones({1}, seen.dtype()));
    return fc(x) * scale;
  }
  std::string extra_repr() const override { return "width=3"; }
  void reset_state() override { fill_(seen, 0); }
};

struct Net : nn::Module {
  nn::ModuleList blocks = add("blocks", nn::ModuleList(Block(), Block()));
  nn::Linear head = add("head", nn::Linear(3, 2));
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (nn::Module& block : blocks) y = relu(block(y));
    return head(y);
  }
};

// As PyTorch's C++ programs are written.
struct Late : nn::Module {
  Late() : first(3, 3), second(3, 3) {
    register_module("first", first);
    add("second", second);
  }
  nn::Linear first, second;
  Tensor forward(const Tensor& x) override { return second(first(x)); }
};

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("walks over a tree by PyTorch's names") {
  Net net;
  Names names, applied;
  for (auto& [name, module] : net.named_modules()) names.push_back(name);
  CHECK(names == Names{"", "blocks", "blocks.0", "blocks.0.fc", "blocks.1", "blocks.1.fc", "head"});
  CHECK(net.modules().size() == 7);
  CHECK(net.modules().front().as<Net>() == &net);
  CHECK(net.children().size() == 2);
  CHECK(net.buffers().size() == 2);
  net.apply([&](nn::Module& module) {
    const std::string name = module.class_name();
    applied.push_back(name.substr(name.rfind(':') + 1));
    if (auto* linear = module.as<nn::Linear>()) fill_(linear->bias, 7);
  });
  CHECK(applied == Names{"Linear", "Block", "Linear", "Block", "ModuleList", "Linear", "Net"});
  CHECK(net.head.bias.to_vector<float>() == std::vector<float>{7, 7});
}

TEST_CASE("what stands at a path") {
  Net net;
  CHECK(net.get_submodule("blocks.1.fc").class_name() == "peal::nn::Linear");
  CHECK(net.get_submodule("").same_as(net));
  CHECK(net.get_submodule("")(ones({1, 3})).shape() == Shape{1, 2});
  CHECK(net.get_parameter("blocks.1.fc.weight").shape() == Shape{3, 3});
  CHECK(net.get_parameter("head.bias").same_as(net.head.bias));
  CHECK(!net.get_parameter("blocks.0.scale").requires_grad());
  CHECK(net.get_buffer("blocks.0.seen").numel() == 1);
  check_has(error_of([&] { net.get_parameter("head.scale"); }),
            "Net: there is no parameter at 'head.scale'");
  check_has(error_of([&] { net.get_buffer("seen"); }), "there is no buffer at 'seen'");
  check_has(error_of([&] { net.get_submodule("blocks.2"); }), "'2' is not one of: 0, 1");
}

TEST_CASE("a member that is registered after it was made stands for what is in its place") {
  Late net;
  nn::Module any = net;
  const Tensor x = ones({1, 3});
  for (const std::string name : {"first", "second"}) {
    any.replace_child(name, nn::Flatten(0));  // which has other results than a Linear
  }
  CHECK(equal(net(x), ones({3})));
  CHECK(equal(any(x), ones({3})));
  CHECK(net.first.same_as(any.child("first")));
  check_has(error_of([&] { net.first = nn::Linear(3, 3); }), "a registered ");

  // What is registered already stays where it is, and a constant is as it was.
  Late other;
  nn::Sequential shares;
  shares.add("shared", other.first);
  const nn::Linear constant(3, 3);
  shares.register_module("constant", constant);
  nn::Sequential list{nn::Linear(3, 3)};
  for (nn::Module& layer : list) shares.add("of a list", layer);
  shares.replace_child("shared", nn::Flatten(0));
  shares.replace_child("constant", nn::Flatten(0));
  list.replace_child("0", nn::ReLU());
  CHECK(list[0].class_name() == "peal::nn::ReLU");
  CHECK(shares.child("of a list").class_name() == "peal::nn::Linear");
  CHECK(other.first.same_as(other.child("first")));
  CHECK(constant.class_name() == "peal::nn::Linear");
}

TEST_CASE("a state that modules keep begins anew") {
  Net net;
  net(ones({1, 3}));
  net(ones({1, 3}));
  CHECK(net.get_buffer("blocks.1.seen").item<float>() == 2);
  net.reset();
  CHECK(net.get_buffer("blocks.0.seen").item<float>() == 0);
  CHECK(net.get_buffer("blocks.1.seen").item<float>() == 0);
  for (const auto& [name, tensor] : net.state_dict()) CHECK(!name.ends_with("seen"));
}

TEST_CASE("a model prints as PyTorch's") {
  Net net;
  const std::string text =
      "Net(\n"
      "  (blocks): ModuleList(\n"
      "    (0-1): 2 x Block(\n"
      "      width=3\n"
      "      (fc): Linear(in_features=3, out_features=3, bias=True)\n"
      "    )\n"
      "  )\n"
      "  (head): Linear(in_features=3, out_features=2, bias=True)\n"
      ")";
  CHECK(net.repr() == text);
  std::ostringstream out;
  out << net;
  CHECK(out.str() == text);
  CHECK(fmt::format("{}", nn::ReLU()) == "ReLU()");
  const nn::Module plain = nn::Dropout2d(0.5);
  CHECK(fmt::format("{}", plain) == "Dropout2d(p=0.5, inplace=False)");
  net.replace_child("head", nn::Identity());
  check_has(net.repr(), "(head): Identity()\n");
}

TEST_CASE("a sequence is read by number, in loops, and grows") {
  nn::Sequential net{nn::Linear(3, 4), nn::ReLU()};
  net.append(nn::Linear(4, 2));
  CHECK(net.size() == 3);
  CHECK(net[0].as<nn::Linear>() != nullptr);
  CHECK(net[-1].as<nn::Linear>()->weight.shape() == Shape{2, 4});
  Tensor y = ones({1, 3});
  for (nn::Module& each : net) y = each(y);
  CHECK(y.to_vector<float>() == net(ones({1, 3})).to_vector<float>());
  check_has(error_of([&] { net[3]; }), "Sequential: there is no element 3 of 3");
  const nn::Sequential named(std::vector<std::pair<std::string, nn::Module>>{
      {"fc", nn::Linear(3, 2)}, {"act", nn::Tanh()}});
  CHECK(named.state_dict()[0].first == "fc.weight");
}

TEST_CASE("lists and dictionaries have PyTorch's keys, and train") {
  Net net;
  Names keys;
  for (const auto& [name, tensor] : net.named_parameters()) keys.push_back(name);
  CHECK(keys == Names{"blocks.0.scale", "blocks.0.fc.weight", "blocks.0.fc.bias", "blocks.1.scale",
                      "blocks.1.fc.weight", "blocks.1.fc.bias", "head.weight", "head.bias"});
  sum(net(ones({2, 3}))).backward();
  CHECK(net.blocks[0].as<Block>()->fc.weight.grad().defined());
  check_has(error_of([&] { net.blocks(ones({1, 3})); }), "has no forward");

  nn::ModuleDict heads{{"a", nn::Linear(3, 1)}, {"b", nn::Linear(3, 2)}};
  CHECK(heads.keys() == Names{"a", "b"});
  CHECK((heads.size() == 2 && heads.contains("b") && !heads.contains("c")));
  CHECK(heads["b"](ones({1, 3})).shape() == Shape{1, 2});
  heads.insert("b", nn::Linear(3, 5));
  heads.insert("c", nn::ReLU());
  CHECK(heads["b"](ones({1, 3})).shape() == Shape{1, 5});
  CHECK(heads.items().size() == 3);
  check_has(error_of([&] { heads["d"]; }), "'d' is not one of: a, b, c");

  nn::ParameterList list({ones({2}), Tensor::zeros({3})});
  list.append(ones({1}));
  CHECK(list.size() == 3);
  CHECK(list[-1].shape() == Shape{1});
  CHECK(list[1].requires_grad());
  CHECK(list.state_dict()[2].first == "2");

  nn::ParameterList tied({list[1], list[0], list[1]});  // as PyTorch's: all three places count
  tied.append(list[0]);
  CHECK(tied.size() == 4);
  CHECK(tied.parameters().size() == 2);
  CHECK(tied[2].same_as(list[1]));
  CHECK((tied[-1].same_as(tied[1]) && tied.get_parameter("3").same_as(list[0])));
  CHECK(tied.state_dict()[3].first == "3");
  CHECK(tied.repr().find("(3): Parameter containing: [f32 of size 2]") != std::string::npos);
  struct Tied : nn::Module {
    Tensor a = add_parameter("a", ones({2})), b = add_parameter("b", a);
    Tensor c = add_buffer("c", ones({3})), d = add_buffer("d", c);
  };
  const Tied twice;
  CHECK(twice.get_parameter("b").same_as(twice.a));
  CHECK(twice.get_buffer("d").same_as(twice.c));

  nn::ParameterDict dict{{"b", ones({2})}, {"a", Tensor::zeros({3})}};
  dict.insert("b", ones({4}));
  CHECK(dict.keys() == Names{"a", "b"});
  CHECK((dict.size() == 2 && dict.contains("a") && !dict.contains("c")));
  CHECK(dict["b"].shape() == Shape{4});
  CHECK(dict["b"].requires_grad());
  CHECK(dict.items()[1].second.same_as(dict["b"]));
  check_has(error_of([&] { dict["c"]; }), "there is no parameter at 'c'");
  check_has(error_of([&] { dict.remove_parameter("c"); }), "it has no parameter 'c' of its own");
  CHECK(dict.remove_parameter("a").shape() == Shape{3});
  CHECK(dict.state_dict().size() == 1);
}

TEST_CASE("parameters as one vector, there and back") {
  nn::Linear fc(2, 3);
  const Tensor vector = nn::parameters_to_vector(fc.parameters());
  CHECK(vector.shape() == Shape{9});
  nn::Linear other(2, 3);
  nn::vector_to_parameters(vector * 2.0, other.parameters());
  CHECK(other.weight.to_vector<float>() == (fc.weight.detach() * 2.0).to_vector<float>());
  CHECK(other.bias.to_vector<float>() == (fc.bias.detach() * 2.0).to_vector<float>());
  sum(vector).backward();  // recorded
  CHECK(fc.bias.grad().to_vector<float>() == std::vector<float>{1, 1, 1});
  check_has(error_of([&] { nn::vector_to_parameters(ones({8}), fc.parameters()); }),
            "expected a vector of 9 elements, got shape [8]");
}

TEST_CASE("a deep copy has the values, types, modes and frozen parameters, and its own storage") {
  Net net;
  net.to(DType::f64);
  net.head.bias.set_requires_grad(false);
  net.blocks[1].eval();
  net(ones({1, 3}, DType::f64));
  Net copy = nn::deepcopy(net, [] { return Net(); });
  CHECK(copy.head.weight.dtype() == DType::f64);
  CHECK(!copy.head.bias.requires_grad());
  CHECK((copy.blocks[0].training() && !copy.blocks[1].training()));
  CHECK(copy.get_buffer("blocks.0.seen").item<double>() == 1);
  const Tensor x = ones({1, 3}, DType::f64);
  CHECK(copy(x).to_vector<double>() == net(x).to_vector<double>());
  const NoGrad guard;
  fill_(net.head.weight, 0);
  CHECK(copy(x).to_vector<double>() != net(x).to_vector<double>());
}

TEST_CASE("a copy has the types of each parameter, or is refused") {
  const auto mixed = [] {
    nn::Sequential both(nn::Linear(2, 2), nn::Linear(2, 2));
    both[0].to(DType::bf16);
    return both;
  };
  const nn::Sequential from = mixed();
  const nn::Sequential copy = nn::deepcopy(from, mixed);
  CHECK(copy.parameters()[0].dtype() == DType::bf16);
  CHECK(copy.parameters()[2].dtype() == DType::f32);
  CHECK(copy.parameters()[2].to_vector<float>() == from.parameters()[2].to_vector<float>());
  CHECK_THROWS_AS(
      nn::deepcopy(from, [] { return nn::Sequential(nn::Linear(2, 2), nn::Linear(2, 2)); }), Error);
}

TEST_CASE("sequences of several lengths as one tensor") {
  const Tensor a = tensor({{1., 2.}, {3., 4.}}).set_requires_grad(), b = tensor({{5., 6.}});
  const Tensor rows = nn::pad_sequence({a, b}, true, -1);
  CHECK(equal(rows, tensor({{{1., 2.}, {3., 4.}}, {{5., 6.}, {-1., -1.}}})));
  CHECK(equal(nn::pad_sequence({b, a}, false, 0, true),
              tensor({{{0., 0.}, {1., 2.}}, {{5., 6.}, {3., 4.}}})));
  sum(rows * rows).backward();
  CHECK(a.grad().to_vector<float>() == std::vector<float>{2, 4, 6, 8});
  check_has(error_of([&] {
              nn::pad_sequence({a, ones({2, 3})});
            }),
            "pad_sequence: expected [2, 2] but for the length, got [2, 3]");
  check_has(error_of([] { nn::pad_sequence({}); }), "there are no sequences");
}
