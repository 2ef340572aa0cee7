// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/tape.h>
#include <peal/tests/errors.h>

#include "arrays.h"

#include <doctest/doctest.h>

using namespace peal;
using testing::error_of;

namespace {

Tensor leaf(std::vector<double> values) {
  const auto n = static_cast<std::int64_t>(values.size());
  const Tensor x = Tensor::from(values, {n});
  x.set_requires_grad();
  return x;
}

}  // namespace

TEST_CASE("gradients flow to leaves and add up until they are zeroed") {
  const Tensor x = leaf({1, 2}), y = leaf({3, 4});
  sum(x * y).backward();
  CHECK(x.grad().to_vector<double>() == std::vector<double>{3, 4});
  sum(x * y).backward();
  CHECK(x.grad().to_vector<double>() == std::vector<double>{6, 8});
  x.zero_grad();
  CHECK(!x.grad().defined());
  sum(x * y).backward();
  CHECK(x.grad().to_vector<double>() == std::vector<double>{3, 4});
  CHECK(y.grad().to_vector<double>() == std::vector<double>{3, 6});
}

TEST_CASE("a hook runs once a backward, when every path has arrived") {
  const Tensor w = leaf({2});
  std::vector<double> seen;
  w.grad_slot().add_hook([&](const Tensor& grad) { seen.push_back(grad.item<double>()); });
  // Tied: used three times, at different depths.
  sum(w * w + mul(w, 10.0)).backward();
  CHECK(seen == std::vector<double>{14});
  w.zero_grad();
  sum(w * w).backward();
  CHECK(seen == std::vector<double>{14, 4});
}

TEST_CASE("several hooks run in order, the final one last, and each can be removed") {
  const Tensor w = leaf({1});
  std::string order;
  w.grad_slot().set_final_hook([&](const Tensor&) { order += 'f'; });
  const auto a = w.grad_slot().add_hook([&](const Tensor&) { order += 'a'; });
  w.grad_slot().add_hook([&](const Tensor&) { order += 'b'; });
  sum(w).backward();
  CHECK(order == "abf");
  w.grad_slot().remove_hook(a);
  sum(w).backward();
  CHECK(order == "abfbf");
  CHECK(error_of([&] {
          w.grad_slot().set_final_hook([](const Tensor&) {});
        }).find("already belongs") != std::string::npos);
  w.grad_slot().remove_final_hook();
  sum(w).backward();
  CHECK(order == "abfbfb");
}

TEST_CASE("hooks run while backward goes on, the last layer's first") {
  const Tensor first = leaf({1}), last = leaf({2});
  std::string order;
  first.grad_slot().add_hook([&](const Tensor&) { order += "first "; });
  last.grad_slot().add_hook([&](const Tensor&) { order += "last "; });
  sum((first * 2.0) * last).backward();
  CHECK(order == "last first ");
}

TEST_CASE("a hook may write the gradient in place") {
  const Tensor w = leaf({1});
  w.grad_slot().add_hook([](const Tensor& grad) { mul_(grad, 0.5); });
  sum(mul(w, 3.0)).backward();
  CHECK(w.grad().item<double>() == 1.5);
}

TEST_CASE("a gradient can live in somebody else's storage and leave it again") {
  const Tensor w = leaf({1, 2});
  const Tensor bucket = Tensor::zeros({5}, DType::f64);
  w.grad_slot().place(bucket.detach({2}, 3));
  sum(mul(w, 3.0)).backward();
  CHECK(bucket.to_vector<double>() == std::vector<double>{0, 0, 0, 3, 3});
  sum(mul(w, 3.0)).backward();
  CHECK(bucket.to_vector<double>()[3] == 6);
  w.grad_slot().unplace();
  bucket.zero_();
  CHECK(w.grad().to_vector<double>() == std::vector<double>{6, 6});
}

TEST_CASE("a leaf whose only path brings no gradient is not completed") {
  const Tensor used = leaf({1}), unused = leaf({1});
  bool ran = false;
  unused.grad_slot().add_hook([&](const Tensor&) { ran = true; });
  sum(used).backward();
  CHECK(!ran);
  CHECK(!unused.grad().defined());
}

TEST_CASE("what was saved and then written in place is an error") {
  const Tensor x = leaf({1, 2}), y = Tensor::from(std::vector<double>{3, 4}, {2});
  const Tensor z = sum(x * y);
  mul_(y, 2.0);
  const std::string error = error_of([&] { z.backward(); });
  CHECK(error.find("shape [2]") != std::string::npos);
  CHECK(error.find("written in place") != std::string::npos);
}

TEST_CASE("a graph is freed by backward unless it is retained") {
  const Tensor x = leaf({2});
  const Tensor y = sum(x * x);
  y.backward({}, true);
  y.backward();
  CHECK(x.grad().item<double>() == 8);
  CHECK(error_of([&] { y.backward(); }).find("retain_graph") != std::string::npos);
  // The failed walk leaves nothing behind.
  x.zero_grad();
  sum(x * x).backward();
  CHECK(x.grad().item<double>() == 4);
}

TEST_CASE("backward needs one element or a seed, and something that wants a gradient") {
  const Tensor x = leaf({1, 2});
  CHECK(error_of([&] { (x * x).backward(); }).find("one element, got shape [2]") !=
        std::string::npos);
  CHECK(error_of([&] { Tensor::zeros({}).backward(); }).find("needs no gradient") !=
        std::string::npos);
  CHECK(error_of([&] {
          (x * x).backward(Tensor::zeros({3}, DType::f64));
        }).find("expected a seed f64 [2], got f64 [3]") != std::string::npos);
  (x * x).backward(Tensor::from(std::vector<double>{1, 10}, {2}));
  CHECK(x.grad().to_vector<double>() == std::vector<double>{2, 40});
  CHECK(error_of([&] { (x * x).set_requires_grad(); }).find("only a leaf") != std::string::npos);
  CHECK(error_of([&] { Tensor::zeros({1}, DType::i64).set_requires_grad(); }).find("i64") !=
        std::string::npos);
}

TEST_CASE("under NoGrad and after detach nothing is recorded") {
  const Tensor x = leaf({1});
  {
    NoGrad guard;
    CHECK(!(x * x).requires_grad());
  }
  CHECK(!(x.detach() * 2.0).requires_grad());
  CHECK((x * 2.0).requires_grad());
}

TEST_CASE("a chain of 200000 nodes goes backward and is freed without recursion") {
  const Tensor x = leaf({1});
  {
    Tensor y = x;
    for (int i = 0; i < 200000; ++i) y = add(y, 0.0);
    sum(y).backward();
    CHECK(x.grad().item<double>() == 1);
  }
  Tensor y = x;  // freed without a backward
  for (int i = 0; i < 200000; ++i) y = add(y, 0.0);
}

TEST_CASE("after_backward runs once the walk is over, also what a callback adds") {
  const Tensor x = leaf({1});
  std::string order;
  x.grad_slot().add_hook([&](const Tensor&) {
    order += 'h';
    after_backward([&] {
      order += '1';
      after_backward([&] { order += '2'; });
    });
  });
  sum(add(x, 1.0)).backward();
  CHECK(order == "h12");
  CHECK(error_of([] { after_backward([] {}); }).find("no backward") != std::string::npos);
}

TEST_CASE("an op over several outputs gets the gradients that came") {
  const Tensor x = leaf({3});
  Tensor a = x.detach().clone(), b = x.detach().clone();
  const std::vector<Tensor> inputs{x};
  const Tensors out = record("twice", Tensors{a, b}, inputs, [](const Tensors& grads, Needs needs) {
    CHECK(needs[0]);
    CHECK(!grads[0].defined());
    return Tensors{mul(grads[1], 5.0)};
  });
  sum(out[1]).backward();
  CHECK(x.grad().item<double>() == 5);
}

TEST_CASE("a backward over a freed graph leaves living graphs alone") {
  const Tensor x = ones({2});
  x.set_requires_grad();
  const Tensor y = mul(x, 2.0), living = mul(y, 3.0), freed = sum(mul(y, 4.0));
  sum(living).backward({}, true);
  freed.backward({}, true);
  sum(mul(y, 1.0)).backward();  // frees y's node, and nothing else
  for (int i = 0; i < 2; ++i) {
    CHECK_THROWS_WITH_AS(sum(living).backward(), doctest::Contains("already freed"), Error);
  }
  x.zero_grad();
  sum(mul(x, 7.0)).backward();
  CHECK(x.grad().to_vector<float>() == std::vector<float>{7, 7});
}

TEST_CASE("hooks and callbacks may add and remove hooks and callbacks") {
  const Tensor x = ones({1});
  x.set_requires_grad();
  int runs = 0, late = 0;
  std::uint64_t self = 0;
  self = x.grad_slot().add_hook([&](const Tensor&) {
    ++runs;
    x.grad_slot().remove_hook(self);
    for (int i = 0; i < 20; ++i) x.grad_slot().add_hook([&](const Tensor&) { ++late; });
    after_backward([&] {
      for (int i = 0; i < 20; ++i) after_backward([&] { ++late; });
    });
  });
  sum(x).backward();
  CHECK(runs == 1);
  CHECK(late == 20);
  sum(x).backward();
  CHECK(runs == 1);
  CHECK(late == 40);
}

TEST_CASE("writing the result of a recorded operation in place is an error, not a wrong gradient") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 3.0;
  const std::string words = "in place, which is not recorded";
  for (const auto& write : std::vector<std::function<void()>>{
           [&] { mul_(y, 2.0); }, [&] { add_(y, y.detach()); }, [&] { fill_(y, 0); },
           [&] { y.zero_(); }, [&] { y.copy_(x.detach()); }}) {
    CHECK(error_of(write).find(words) != std::string::npos);
  }
  CHECK(y.to_vector<double>() == std::vector<double>{3, 6});
  {
    NoGrad guard;
    mul_(y, 2.0);
  }
  mul_(y.detach(), 0.5);
  CHECK(y.to_vector<double>() == std::vector<double>{3, 6});
  sum(y).backward();  // a product with a number keeps nothing
  CHECK(x.grad().to_vector<double>() == std::vector<double>{3, 3});
  // A leaf may be written, and is noticed where it was kept.
  const Tensor z = sum(x * x);
  fill_(x, 5);
  CHECK(error_of([&] { z.backward(); }).find("written in place") != std::string::npos);
}

TEST_CASE("a write through any alias of what was saved is noticed, one beside it is counted too") {
  const Tensor x = leaf({1, 2, 3, 4}), all = Tensor::from(std::vector<double>{1, 2, 3, 4}, {4});
  const Tensor y = sum(x * all);
  all.rows(0, 1).zero_();
  CHECK(error_of([&] { y.backward(); }).find("written in place") != std::string::npos);
  const Tensor z = sum(exp(x));  // keeps its result
  const Tensor shape = reshape(z, {1});
  shape.backward();
  CHECK(x.grad().defined());
}

TEST_CASE("retained graphs give the same gradients each time, and may be freed from any end") {
  const Tensor x = leaf({2, 3}), w = leaf({4, 5});
  const Tensor h = x * w;
  const Tensor a = sum(h * h), b = sum(exp(h * 0.1));
  a.backward({}, true);
  const std::vector<double> once = x.grad().to_vector<double>();
  for (int i = 2; i < 4; ++i) {
    a.backward({}, true);
    CHECK(x.grad().to_vector<double>() == std::vector<double>{i * once[0], i * once[1]});
  }
  b.backward();  // frees what it shares with a
  CHECK(error_of([&] { a.backward(); }).find("already freed") != std::string::npos);
}

TEST_CASE("NoGrad nests and ends with its scope, also by an exception") {
  const Tensor x = leaf({1});
  {
    NoGrad outer;
    { NoGrad inner; }
    CHECK(!(x * 2.0).requires_grad());
    CHECK(x.requires_grad());
  }
  try {
    NoGrad guard;
    throw Error("out");
  } catch (const Error&) {
  }
  CHECK((x * 2.0).requires_grad());
}

TEST_CASE("memory of the caller's can be a leaf; its gradient is its own") {
  double own[2] = {2, 3};
  bool released = false;
  {
    const Tensor x = Tensor::from_blob(own, {2}, DType::f64, [&] { released = true; });
    x.set_requires_grad();
    const Tensor y = sum(x * x);
    y.backward({}, true);
    CHECK(x.grad().to_vector<double>() == std::vector<double>{4, 6});
    own[0] = 7;  // which no version counts: the caller's to order
    x.zero_grad();
    y.backward();
    CHECK(x.grad().to_vector<double>() == std::vector<double>{14, 6});
    CHECK(own[1] == 3);
  }
  CHECK(released);
}

TEST_CASE("what was saved may drop its bytes, and is read when its values are there again") {
  const Tensor x = leaf({1, 2}), w = Tensor::from(std::vector<double>{3, 4}, {2});
  const Tensor y = sum(x * w), again = sum(x * w);
  Storage& storage = *w.storage();
  storage.drop();
  CHECK(error_of([&] { y.backward({}, true); }).find("are dropped") != std::string::npos);
  storage.regain();
  CHECK(error_of([&] { y.backward({}, true); }).find("written in place") != std::string::npos);
  w.copy_(Tensor::from(std::vector<double>{3, 4}, {2}));
  storage.restored();
  x.zero_grad();
  y.backward();
  CHECK(x.grad().to_vector<double>() == std::vector<double>{3, 4});
  w.zero_();  // other values after all
  CHECK(error_of([&] { again.backward(); }).find("written in place") != std::string::npos);
}

TEST_CASE("a hook that removes another which has not run yet keeps it from running") {
  const Tensor w = leaf({1});
  std::string order;
  std::uint64_t second = 0;
  w.grad_slot().add_hook([&](const Tensor&) {
    order += 'a';
    w.grad_slot().remove_hook(second);
  });
  second = w.grad_slot().add_hook([&](const Tensor&) { order += 'b'; });
  w.grad_slot().add_hook([&](const Tensor&) { order += 'c'; });
  sum(w).backward();
  CHECK(order == "ac");
}

TEST_CASE("what was made of leaves alone is visited as soon as all that uses it was") {
  const Tensor a = leaf({1, 1}), b = leaf({1, 1}), c = leaf({1, 1});
  std::string order;
  const auto noted = [&order](const char* name, const Tensor& x) {
    return record("noted", x.detach().clone(), {x}, [&order, name](const Tensor& g) {
      order += name;
      return g;
    });
  };
  const Tensor of_a = noted("a", a), of_b = noted("b", b), of_c = noted("c", c);
  const Tensor first = noted("1", of_a * of_a), second = noted("2", first * of_b * of_c);
  b.grad_slot().add_hook([&](const Tensor&) { order += "B"; });
  sum(second + of_c).backward();
  CHECK(order == "2cbB1a");
  CHECK(a.grad().to_vector<double>() == std::vector<double>{2, 2});
  CHECK(c.grad().to_vector<double>() == std::vector<double>{2, 2});
  // Where another use comes later in the walk it is waited for.
  order.clear();
  const Tensor twice = noted("t", b), early = noted("e", twice * 2.0);
  sum(noted("l", early + twice)).backward();
  CHECK(order == "letB");
}
