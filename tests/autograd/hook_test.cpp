// SPDX-License-Identifier: Apache-2.0
// Hooks of tensors, gradients that inner tensors keep, anomaly detection, and Jacobians.
#include <peal/autograd/anomaly.h>
#include <peal/autograd/functional.h>
#include <peal/autograd/grad.h>
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/ops/ops.h>
#include <peal/tests/errors.h>

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <type_traits>
#include <vector>

using namespace peal;
using testing::error_of;
using Numbers = std::vector<double>;

// x.rows(0, 1) = y would write nothing.
static_assert(!std::is_assignable_v<Tensor&&, const Tensor&>);
static_assert(std::is_assignable_v<Tensor&, const Tensor&>);

namespace {

Tensor leaf(const Numbers& values) {
  const Tensor x = Tensor::from(values, {static_cast<std::int64_t>(values.size())});
  x.set_requires_grad();
  return x;
}

Numbers of(const Tensor& x) { return x.to_vector<double>(); }

}  // namespace

TEST_CASE("a hook of an inner tensor sees the sum of all that used it, once, and may replace it") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 3.0;
  std::vector<Numbers> seen;
  y.register_hook([&](const Tensor& g) { seen.push_back(of(g)); });
  const auto id = y.register_hook([](const Tensor& g) { return g * 10.0; });
  y.register_hook([&](const Tensor& g) { seen.push_back(of(g)); });
  (sum(y * y) + sum(y)).backward({}, true);  // 2 y + 1
  CHECK(seen == std::vector<Numbers>{{7, 13}, {70, 130}});
  CHECK(of(x.grad()) == Numbers{210, 390});
  y.remove_hook(id);
  x.zero_grad();
  (sum(y * y) + sum(y)).backward();
  CHECK(of(x.grad()) == Numbers{21, 39});
  CHECK(seen.size() == 4);
  CHECK(seen[3] == Numbers{7, 13});
}

TEST_CASE("a hook of a leaf comes before its gradient is accumulated, hooks of the slot after") {
  const Tensor x = leaf({1, 2});
  std::vector<std::string> order;
  x.grad_slot().add_hook([&](const Tensor& g) {
    order.push_back("slot");
    CHECK(of(g) == Numbers{-7, -9});
  });
  const auto id = x.register_hook([&](const Tensor& g) {
    order.push_back("tensor");
    CHECK(of(g) == Numbers{7, 9});  // of both uses
    return -g;
  });
  (sum(x * x) + sum(x) * 5.0).backward();
  CHECK(order == std::vector<std::string>{"tensor", "slot"});
  CHECK(of(x.grad()) == Numbers{-7, -9});
  x.remove_hook(id);
  x.zero_grad();
  order.clear();
  const Tensor kept = leaf({0, 0});  // accumulated over backwards, each through the hook
  kept.register_hook([](const Tensor& g) { return g + 1.0; });
  sum(kept * 2.0).backward();
  sum(kept * 4.0).backward();
  CHECK(of(kept.grad()) == Numbers{8, 8});
}

TEST_CASE("a leaf that is added to a hook within a backward is left as it is for that one") {
  const Tensor x = leaf({1});
  const Tensor y = x * 2.0;
  y.register_hook([&](const Tensor&) { x.register_hook([](const Tensor& g) { return g * 0.0; }); });
  const Tensor z = x * 5.0;  // newer: its part comes first
  (sum(z) + sum(y)).backward();
  CHECK(of(x.grad()) == Numbers{7});
}

TEST_CASE("grad() goes through hooks, of leaves and of inner tensors") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * x;
  x.register_hook([](const Tensor& g) { return g * 3.0; });
  y.register_hook([](const Tensor& g) { return g + 1.0; });
  const Tensor z = sum(y);
  const Tensors found = autograd::grad({z}, {x, y, x});
  CHECK(of(found[1]) == Numbers{2, 2});
  CHECK(of(found[0]) == Numbers{12, 24});
  CHECK(of(found[2]) == Numbers{12, 24});
  CHECK(!x.grad().defined());
}

TEST_CASE("grad() calls the hooks of leaves in the order of its inputs") {
  Tensors leaves;
  std::vector<int> order, expected;
  for (int k = 0; k < 40; ++k) {
    leaves.push_back(leaf({1}));
    leaves.back().register_hook([&order, k](const Tensor&) { order.push_back(k); });
    expected.push_back(k);
  }
  autograd::grad({sum(cat(leaves))}, leaves);
  CHECK(order == expected);
}

TEST_CASE("with create_graph what a hook computes is differentiated too") {
  const Tensor x = leaf({3});
  const Tensor y = x * 1.0;
  const auto id = y.register_hook([](const Tensor& g) { return g * g; });  // (3 x^2)^2
  const Tensor g = autograd::grad({sum(y * y * y)}, {x}, {.create_graph = true})[0];
  CHECK(of(g) == Numbers{27 * 27});
  // The second backward goes through y again, so its hook would run there too.
  y.remove_hook(id);
  CHECK(of(autograd::grad({sum(g)}, {x})[0]) == Numbers{36 * 27});
}

TEST_CASE("a hook's gradient of another shape or type, and one where none comes, are errors") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 2.0;
  y.register_hook([](const Tensor& g) { return sum(g); });
  CHECK(error_of([&] { sum(y).backward(); }) ==
        "register_hook: a hook of 'mul' was given a gradient f64 [2] on cpu and returned f64 [] on "
        "cpu; return one like it, or nothing");
  CHECK(error_of([&] {
          x.detach().register_hook([](const Tensor&) {});
        }).starts_with("register_hook: this tensor of shape [2] wants no gradient"));
  CHECK(error_of([&] {
          x.detach().retain_grad();
        }).starts_with("retain_grad: this tensor of shape [2] wants no gradient"));
  // What the failed backward left is not part of the next.
  const Tensor w = leaf({1, 1});
  w.register_hook([](const Tensor& g) { return g * 1.0; });
  const Tensor bad = w * 2.0;
  const auto id = bad.register_hook([](const Tensor& g) { return sum(g); });
  const Tensor good = w * 3.0;
  CHECK_THROWS_AS((sum(good) + sum(bad)).backward({}, true), Error);
  bad.remove_hook(id);
  (sum(good) + sum(bad)).backward();
  CHECK(of(w.grad()) == Numbers{5, 5});
}

TEST_CASE("retain_grad keeps an inner tensor's gradient, after all its hooks") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 3.0, other = x * 1.0;
  CHECK(!y.retains_grad());
  y.retain_grad();
  y.register_hook([](const Tensor& g) { return g * 2.0; });
  CHECK(y.retains_grad());
  CHECK(!x.retains_grad());
  CHECK(!y.is_leaf());
  sum(y * other).backward({}, true);
  CHECK(of(y.grad()) == Numbers{2, 4});
  CHECK(!other.grad().defined());
  sum(y * other).backward();  // accumulates
  CHECK(of(y.grad()) == Numbers{4, 8});
  y.zero_grad();
  CHECK(!y.grad().defined());
}

TEST_CASE("a tensor that is written in place keeps the gradient of what it has become") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 1.0;
  y.retain_grad();
  y *= 5.0;
  sum(y * y).backward();
  CHECK(of(y.grad()) == Numbers{10, 20});
  CHECK(of(x.grad()) == Numbers{50, 100});
}

TEST_CASE("anomaly detection names the operation that gave the first NaN") {
  const Tensor x = leaf({0, 4});
  const auto loss = [&] { return sum(sqrt(x) * 0.0); };  // 0 / 0 at 0
  {
    const DetectAnomaly guard;
    CHECK(error_of([&] { loss().backward(); }) ==
          "backward: 'sqrt' gave a NaN in the gradient of its input 0, f64 [2]; DetectAnomaly "
          "around the forward, too, tells its module");
    const DetectAnomaly off(false);
    loss().backward();
  }
  CHECK(std::isnan(of(x.grad())[0]));
}

TEST_CASE("EnableGrad records within NoGrad") {
  const Tensor x = leaf({1});
  const NoGradGuard none;
  CHECK(!(x * 2.0).requires_grad());
  const EnableGrad guard;
  CHECK((x * 2.0).requires_grad());
}

TEST_CASE("Jacobians, Hessians and their products") {
  const Tensor x = Tensor::from(Numbers{1, 2, 3}, {3}), v = Tensor::from(Numbers{1, -1, 2}, {3});
  const auto squares = [](const Tensor& t) { return t * t * sum(t); };
  // d (t_i^2 s) / d t_j = t_i^2 + [i = j] 2 t_i s
  const Tensor J = autograd::jacobian(squares, x);
  CHECK(J.shape() == Shape{3, 3});
  CHECK(of(J) == Numbers{13, 1, 1, 4, 28, 4, 9, 9, 45});
  CHECK(!J.requires_grad());
  const auto [y, vJ] = autograd::vjp(squares, x, v);
  CHECK(of(y) == Numbers{6, 24, 54});
  CHECK(of(vJ) == Numbers{13 - 4 + 18, 1 - 28 + 18, 1 - 4 + 90});
  const auto [same, Jv] = autograd::jvp(squares, x, v);
  CHECK(of(same) == Numbers{6, 24, 54});
  CHECK(of(Jv) == Numbers{13 - 1 + 2, 4 - 28 + 8, 9 - 9 + 90});
  const auto cubes = [](const Tensor& t) { return sum(t * t * t) + sum(t) * sum(t); };
  const Tensor H = autograd::hessian(cubes, x);
  CHECK(of(H) == Numbers{8, 2, 2, 2, 14, 2, 2, 2, 20});
  CHECK(of(autograd::hvp(cubes, x, v).second) == Numbers{8 - 2 + 4, 2 - 14 + 4, 2 - 2 + 40});
  // Of several inputs, one of which the output does not depend on.
  const auto both = [](const Tensors& in) { return in[0] * 2.0; };
  const Tensors parts = autograd::jacobian(both, {x, v});
  CHECK(of(parts[0]) == Numbers{2, 0, 0, 0, 2, 0, 0, 0, 2});
  CHECK(of(parts[1]) == Numbers(9));
  CHECK(autograd::jacobian([](const Tensor&) { return ones({2}, DType::f64); }, x).shape() ==
        Shape{2, 3});
  // Recorded, where that is asked for.
  const Tensor w = leaf({2});
  const Tensor slope =
      autograd::jacobian([](const Tensor& t) { return t * t * t; }, w, /*create_graph=*/true);
  sum(slope).backward();
  CHECK(of(w.grad()) == Numbers{12});
  const NoGrad guard;
  CHECK(of(autograd::jacobian(squares, x)) == of(J));
  CHECK_THROWS_AS(autograd::hessian(squares, x), Error);
  CHECK_THROWS_AS(autograd::vjp(squares, x), Error);
  CHECK_THROWS_AS(autograd::jvp(squares, x, ones({2}, DType::f64)), Error);
  CHECK_THROWS_AS(autograd::jacobian(squares, Tensor::zeros({2}, DType::i64)), Error);
}

TEST_CASE("gradcheck finds a wrong gradient, and says where") {
  const Tensor x = leaf({0.5, 1.5}), constant = Tensor::from(Numbers{2, 3}, {2});
  CHECK(autograd::gradcheck([](const Tensors& in) { return exp(in[0]) * in[1]; }, {x, constant}));
  const auto wrong = [](const Tensors& in) {
    const Tensor y = in[0] * 1.0;
    y.register_hook([](const Tensor& g) { return g * 2.0; });
    return y;
  };
  CHECK(!autograd::gradcheck(wrong, {x}, {.raise_exception = false}));
  CHECK(error_of([&] { autograd::gradcheck(wrong, {x}); })
            .starts_with("gradcheck: element 0 of the output by element 0 of input 0: the gradient "
                         "is 2, the difference quotient"));
  CHECK(of(x) == Numbers{0.5, 1.5});
  CHECK(!x.grad().defined());
  CHECK_THROWS_AS(autograd::gradcheck(wrong, {constant}), Error);
}
