// SPDX-License-Identifier: Apache-2.0
// autograd::grad, and gradients of gradients over the table of ops: each is held against central
// differences of its first gradient, or is refused by name.
#include <peal/autograd/functional.h>
#include <peal/autograd/grad.h>
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/tape.h>

#include "arrays.h"
#include "op_cases.h"

#include <doctest/doctest.h>
#include <peal/tests/difference.h>
#include <peal/tests/errors.h>

#include <set>

using namespace peal;
using namespace peal::test;
using testing::error_of;

namespace {

Tensor leaf(std::vector<double> values) {
  const auto n = static_cast<std::int64_t>(values.size());
  return Tensor::from(values, {n}).set_requires_grad();
}
using Doubles = std::vector<double>;

// Of the inputs' first gradients, weighted with fixed numbers, so that they all count differently.
Tensor slope(const OpCase& entry, const Tensors& x, bool create_graph) {
  const Tensor y = entry.op(x, entry.constants);
  const Tensors grads = autograd::grad({sum(y * normal<double>(y.shape(), 99))}, x,
                                       {.create_graph = create_graph, .allow_unused = true});
  Tensor total = full({}, 0, DType::f64);
  for (const Tensor& grad : grads) {
    if (grad.defined()) total = total + sum(grad * normal<double>(grad.shape(), 77));
  }
  return total;
}

// The largest difference to central differences, over the largest element; or of the first gradient
// to that of the kernels, which central differences of it cannot tell from one that lacks a
// constant.
double second_order_error(const OpCase& entry) {
  const Tensors x = inputs_of<double>(entry);
  const Tensor total = slope(entry, x, true);
  Tensors seconds(x.size());
  if (total.requires_grad()) seconds = autograd::grad({total}, x, {.allow_unused = true});
  const double first = slope(entry, x, false).item<double>();
  double worst =
      testing::larger(0, std::abs(total.item<double>() - first) / std::max(1.0, std::abs(first)));
  for (std::size_t input = 0; input < x.size(); ++input) {
    Doubles numeric, exact(static_cast<std::size_t>(x[input].numel()), 0.0);
    if (seconds[input].defined()) exact = doubles(seconds[input]);
    double* at = x[input].data<double>();
    for (std::int64_t i = 0; i < x[input].numel(); ++i) {
      const double before = at[i], h = 1e-5;
      at[i] = before + h;
      const double above = slope(entry, x, false).item<double>();
      at[i] = before - h;
      const double below = slope(entry, x, false).item<double>();
      at[i] = before;
      numeric.push_back((above - below) / (2 * h));
    }
    double scale = 1;
    for (const double value : numeric) scale = std::max(scale, std::abs(value));
    for (std::size_t i = 0; i < numeric.size(); ++i) {
      worst = testing::larger(worst, std::abs(numeric[i] - exact[i]) / scale);
    }
  }
  return worst;
}

}  // namespace

TEST_CASE("grad gives gradients of leaves and of results, and touches no slot") {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4});
  bool ran = false;
  x.grad_slot().add_hook([&](const Tensor&) { ran = true; });
  const Tensor h = x * w, y = sum(h * h);
  const Tensors grads = autograd::grad({y}, {h, x, w});
  CHECK(doubles(grads[0]) == Doubles{6, 16});
  CHECK(doubles(grads[1]) == Doubles{18, 64});
  CHECK(doubles(grads[2]) == Doubles{6, 32});
  CHECK(!ran);
  CHECK(!x.grad().defined());
  CHECK(!grads[0].requires_grad());
  CHECK(error_of([&] { y.backward(); }).find("already freed") != std::string::npos);
}

TEST_CASE("grad of several outputs with their own gradients; of an output itself; retained") {
  const Tensor x = leaf({1, 2});
  const Tensor a = x * 2.0, b = x * x;
  const autograd::GradOptions options{
      .grad_outputs = {leaf({1, 10}).detach(), ones({2}, DType::f64)}, .retain_graph = true};
  CHECK(doubles(autograd::grad({a, b}, {x}, options)[0]) == Doubles{4, 24});
  CHECK(doubles(autograd::grad({a, b}, {a}, options)[0]) == Doubles{1, 10});
  CHECK(doubles(autograd::grad({x}, {x}, {.grad_outputs = {x.detach()}})[0]) == Doubles{1, 2});
}

TEST_CASE("results of grad share memory with nothing else") {
  const Tensor a = leaf({1, 2}), b = leaf({3, 4}), seed = leaf({5, 6}).detach();
  for (const bool create_graph : {false, true}) {
    const Tensor y = a + b;
    const Tensors grads =
        autograd::grad({y}, {a, b, y, a}, {.grad_outputs = {seed}, .create_graph = create_graph});
    for (std::size_t i = 0; i < grads.size(); ++i) {
      CHECK(doubles(grads[i]) == Doubles{5, 6});
      CHECK(grads[i].storage() != seed.storage());
      for (std::size_t j = 0; j < i; ++j) CHECK(grads[i].storage() != grads[j].storage());
    }
  }
}

TEST_CASE("grad goes only where it leads") {
  const Tensor x = leaf({1}), w = leaf({2});
  bool visited = false;
  const Tensor aside = record("aside", w * 1.0, {w}, [&](const Tensor& g) {
    visited = true;
    return g;
  });
  const Tensor y = sum(x * aside);
  CHECK(doubles(autograd::grad({y}, {x}, {.retain_graph = true})[0]) == Doubles{2});
  CHECK(!visited);
  CHECK(autograd::grad({sum(x)}, {w}, {.allow_unused = true})[0].defined() == false);
  CHECK(error_of([&] { autograd::grad({y}, {x.detach()}); }).find("input 0") != std::string::npos);
  CHECK(error_of([&] { autograd::grad({sum(x)}, {w}); }).find("allow_unused") != std::string::npos);
  CHECK(error_of([&] { autograd::grad({x.detach()}, {w}); }).find("output 0") != std::string::npos);
  CHECK(error_of([&] {
          autograd::grad({leaf({1, 2})}, {w});
        }).find("one element") != std::string::npos);
}

TEST_CASE("a gradient penalty flows to the parameters") {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4});
  const Tensor slopes = autograd::grad({sum(w * x * x)}, {x}, {.create_graph = true})[0];
  CHECK(doubles(slopes) == Doubles{6, 16});
  sum(slopes * slopes).backward();  // (2 w x)^2
  CHECK(doubles(w.grad()) == Doubles{24, 128});
  CHECK(doubles(x.grad()) == Doubles{72, 256});
}

TEST_CASE("a backward inside a function is refused where its gradient is recorded") {
  const Tensor x = leaf({3});
  const auto cube = [](const Tensor& in) { return in * in * in; };
  // The gradient by a graph of its own: of backward(), or of grad() with create_graph or without.
  enum class By { backward, grad, recorded_grad };
  const auto again = [&](const Tensor& in, By by) {
    Tensor y;
    {
      const NoGrad guard;
      y = cube(in);
    }
    return record("again", y, {in}, [&, by, in = save(in)](const Tensor& g) {
      const GradMode recorded(true);
      const Tensor here = by == By::recorded_grad && backward_is_recorded()
                              ? in()
                              : in().detach().clone().set_requires_grad();
      const Tensor out = cube(here);
      if (by == By::backward) {
        out.backward(g.detach());
        return here.grad();
      }
      return autograd::grad({out}, {here},
                            {.grad_outputs = {g},
                             .create_graph = by == By::recorded_grad && backward_is_recorded()})[0];
    });
  };
  for (const By by : {By::backward, By::grad, By::recorded_grad}) {
    CHECK(doubles(autograd::grad({again(x, by)}, {x})[0]) == Doubles{27});
  }
  for (const By by : {By::backward, By::grad}) {
    const std::string error =
        error_of([&] { autograd::grad({again(x, by)}, {x}, {.create_graph = true}); });
    CAPTURE(error);
    CHECK(error.find("'again'") != std::string::npos);
    CHECK(error.find("cannot be differentiated in turn") != std::string::npos);
  }
  const Tensor slope =
      autograd::grad({again(x, By::recorded_grad)}, {x}, {.create_graph = true})[0];
  CHECK(doubles(autograd::grad({slope}, {x})[0]) == Doubles{18});
}

TEST_CASE(
    "a function may differentiate what it makes of copies of results, while its gradient is "
    "recorded") {
  const Tensor x = leaf({3});
  const auto cube = [](const Tensor& in) {
    return record("cube", in * in * in, {in}, [in = save(in)](const Tensor& g) {
      const GradMode recorded(true);
      const Tensor copy = reshape(in(), {1});
      return autograd::grad({copy * copy * copy}, {copy},
                            {.grad_outputs = {g}, .create_graph = backward_is_recorded()})[0];
    });
  };
  const Tensor slope = autograd::grad({cube(x * 2.0)}, {x}, {.create_graph = true})[0];
  CHECK(doubles(slope) == Doubles{24 * 9});
  CHECK(doubles(autograd::grad({slope}, {x})[0]) == Doubles{48 * 3});
}

TEST_CASE("a recorded gradient through a loss lets go of its graph") {
  const Tensor target = Tensor::from(std::vector<std::int64_t>{1, 0}, {2});
  std::weak_ptr<Node> node;
  {
    const Tensor x = full({2, 3}, 1, DType::f64).set_requires_grad();
    const Tensor logits = x * 2.0;
    node = logits.body().node;
    autograd::grad({cross_entropy(logits, target)}, {x}, {.create_graph = true});
  }
  CHECK(node.expired());
}

TEST_CASE("a recorded gradient of a loss of classes is the kernels', row by row") {
  const Tensor scores = Tensor::from(Doubles{NAN, 1, 3, 1, 2, 0, INFINITY, 1, 2}, {3, 3});
  const Tensor target = Tensor::from(std::vector<std::int64_t>{-100, 1, -100}, {3});
  for (const Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum}) {
    for (const double smoothing : {0.0, 0.5, 1.0}) {
      CAPTURE(smoothing);
      const Tensor x = scores.clone().set_requires_grad();
      const auto gradient = [&](bool create_graph) {
        autograd::GradOptions options{.create_graph = create_graph};
        // What goes into an ignored row counts as little as what is in it.
        if (reduction == Reduction::none) {
          options.grad_outputs = {Tensor::from(Doubles{INFINITY, 3, NAN}, {3})};
        }
        return autograd::grad({cross_entropy(x, target, reduction, -100, smoothing)}, {x},
                              options)[0];
      };
      const Tensor recorded = gradient(true);
      const Doubles found = doubles(recorded), expected = doubles(gradient(false));
      for (std::size_t i = 0; i < found.size(); ++i) {
        CHECK(found[i] == doctest::Approx(expected[i]).epsilon(1e-14));
        if (i / 3 != 1) CHECK(found[i] == 0);
      }
      const Doubles seconds = doubles(autograd::grad({sum(square(recorded))}, {x})[0]);
      for (std::size_t i = 0; i < seconds.size(); ++i) CHECK((seconds[i] == 0) == (i / 3 != 1));
    }
  }
  const Tensor logs = scores.clone().set_requires_grad();
  const autograd::GradOptions options{
      .grad_outputs = {Tensor::from(Doubles{INFINITY, 3, NAN}, {3})}, .create_graph = true};
  CHECK(doubles(autograd::grad({nll_loss(logs, target, Reduction::none)}, {logs}, options)[0]) ==
        Doubles{0, 0, 0, 0, -3, 0, 0, 0, 0});
}

TEST_CASE("third derivatives") {
  const Tensor x = leaf({2});
  Tensor y = sum(pow(x, 5));
  for (int i = 0; i < 3; ++i) y = autograd::grad({y}, {x}, {.create_graph = true})[0];
  CHECK(doubles(y) == Doubles{5 * 4 * 3 * 4});
}

TEST_CASE("products differentiate in turn where elements are 0") {
  const auto product = [](const Tensor& x) { return prod(x); };
  const auto along = [](const Tensor& x) { return sum(prod(reshape(x, {1, 3}), 1)); };
  const auto running = [](const Tensor& x) { return sum(cumprod(x, 0)); };
  for (const auto& f : {autograd::Function(product), autograd::Function(along)}) {
    CHECK(doubles(autograd::hessian(f, leaf({0, 3, 2}))) == Doubles{0, 2, 3, 2, 0, 0, 3, 0, 0});
    CHECK(doubles(autograd::hessian(f, leaf({0, 3, 0}))) == Doubles{0, 0, 3, 0, 0, 0, 3, 0, 0});
  }
  // x0 + x0 x1 + x0 x1 x2
  CHECK(doubles(autograd::hessian(running, leaf({0, 3, 2}))) == Doubles{0, 3, 3, 3, 0, 0, 3, 0, 0});
  CHECK(doubles(autograd::hessian(running, leaf({0, 0, 2}))) == Doubles{0, 3, 0, 3, 0, 0, 0, 0, 0});
  const Tensor x = leaf({0, 0, 0});
  for (const auto& f : {autograd::Function(product), autograd::Function(running)}) {
    Tensor y = f(x);
    for (std::int64_t i = 0; i < 3; ++i) {
      y = sum(autograd::grad({y}, {x}, {.create_graph = true})[0].rows(i, i + 1));
    }
    CHECK(y.item<double>() == 1);
  }
}

TEST_CASE("scattered products differentiate in turn where elements are 0") {
  const Tensor index = Tensor::from<std::int64_t>({0, 0, 1}, {3});
  const auto scattered = [&](const Tensor& source) {
    return sum(scatter_reduce(full({2}, 1, DType::f64), 0, index, source, ScatterReduce::prod));
  };
  for (const double first : {4, 0}) {
    for (const double second : {3, 0}) {
      CHECK(doubles(autograd::hessian(scattered, leaf({first, second, 2}))) ==
            Doubles{0, 1, 0, 1, 0, 0, 0, 0, 0});
    }
  }
  const Tensor x = leaf({0, 3, 2});
  CHECK(doubles(autograd::grad({scattered(x)}, {x})[0]) == Doubles{3, 0, 1});
}

TEST_CASE("beside a 0 the gradient of a scattered product is 0, though the rest leaves the range") {
  struct Case {
    DType dtype;
    Doubles source, expected;
  };
  for (const auto& [dtype, source, expected] : {Case{DType::f32, {1e30, 1e30, 0}, {0, 0, INFINITY}},
                                                {DType::f16, {300, 300, 0}, {0, 0, INFINITY}},
                                                {DType::f32, {1e30, 1e30, 0, 0}, {0, 0, 0, 0}},
                                                {DType::f32, {-0.5, 4, 0}, {0, 0, -2}}}) {
    CAPTURE(concat(dtype, " ", source.size()));
    const auto n = static_cast<std::int64_t>(source.size());
    const Tensor index = Tensor::zeros({n}, DType::i64), one = full({1}, 1, dtype);
    const Tensor x = cast(Tensor::from(source, {n}), dtype).set_requires_grad();
    for (const bool recorded : {false, true}) {
      const Tensor y = scatter_reduce(one, 0, index, x, ScatterReduce::prod);
      const Tensor slopes = autograd::grad({y}, {x}, {.create_graph = recorded})[0];
      CHECK(doubles(slopes) == expected);
    }
  }
}

TEST_CASE(
    "the gradient of a product is the same where it is recorded, though its parts leave f32") {
  const Tensor x = cat({full({100}, 0.25F), full({100}, 4.0F)}).requires_grad_();
  const auto gradient = [&](bool recorded) {
    return autograd::grad({prod(x)}, {x}, {.create_graph = recorded})[0].detach();
  };
  CHECK(gradient(false).to_vector<float>() == gradient(true).to_vector<float>());
  CHECK(gradient(true)[0].item<float>() == 4);
  const Tensor one = tensor({0.0F, 1e30F, 1e30F, 1e-30F, 1e-30F}).requires_grad_();
  const Tensor slopes = autograd::grad({prod(one)}, {one}, {.create_graph = true})[0];
  CHECK(slopes[0].item<float>() == doctest::Approx(1));
}

TEST_CASE("gradients of gradients over the table of ops") {
  std::set<std::string> refused;
  int held = 0;
  for (const OpCase& entry : all_cases()) {
    std::int64_t elements = 0;
    for (const Input& input : entry.inputs) elements += input.shape.numel();
    if (!entry.derivative || elements > 200) continue;
    CAPTURE(entry.torch);
    CAPTURE(concat(entry.inputs[0].shape));
    double error = 0;
    const std::string message = error_of([&] { error = second_order_error(entry); });
    if (message != "nothing") {
      const std::string words = "grad: the gradient of '";
      REQUIRE(message.substr(0, words.size()) == words);
      refused.insert(message.substr(words.size(), message.find('\'', words.size()) - words.size()));
      continue;
    }
    ++held;
    CHECK(error < 1e-6);
  }
  CHECK(refused.empty());  // on the CPU
  CHECK(held > 150);
}

TEST_CASE("a gradient that calls kernels is refused by name, where it would not be recorded") {
  const auto by_hand = [](const Tensor& x) {
    return record("by_hand", x * x, {x}, [x = save(x)](const Tensor& g) {
      const Tensor dx = Tensor::empty(g.shape(), g.dtype(), g.device());
      kernels(g.device()).binary("by_hand", g, Binary::mul, dx, g, x());
      return dx;
    });
  };
  const Tensor x = leaf({1, 2}), y = sum(by_hand(x));
  CHECK(error_of([&] {
          autograd::grad({y}, {x}, {.create_graph = true});
        }).starts_with("grad: the gradient of 'by_hand' is computed by a kernel"));
  CHECK(doubles(autograd::grad({y}, {x})[0]) == Doubles{1, 2});
}

TEST_CASE("embedding, dropout and copies differentiate twice") {
  const Tensor index = Tensor::from(std::vector<std::int64_t>{2, 0, 2, 1}, {4});
  manual_seed(1);
  const Tensor mask = dropout(ones({3, 2}, DType::f64), 0.5);
  const std::vector<std::pair<std::string, std::function<Tensor(const Tensor&)>>> functions = {
      {"embedding", [&](const Tensor& w) { return embedding(index, w * w, 1); }},
      {"rows", [&](const Tensor& w) { return pow(w, 3).rows(1, 3); }},
      {"clone", [&](const Tensor& w) { return pow(w, 3).clone(); }},
      {"dropout",
       [&](const Tensor& w) {
         manual_seed(1);
         return dropout(w * w * w, 0.5);
       }},
  };
  for (const auto& [name, f] : functions) {
    CAPTURE(name);
    const OpCase entry{
        name, [&f = f](const Tensors& x, const Tensors&) { return f(x[0]); }, {{{3, 2}}}};
    CHECK(second_order_error(entry) < 1e-6);
  }
}
