// SPDX-License-Identifier: Apache-2.0
// A backward inside a backward, as recomputed activations have it, and how backwards are numbered.
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/tape.h>
#include <peal/tests/errors.h>

#include "arrays.h"

#include <doctest/doctest.h>

#include <set>
#include <thread>

using namespace peal;
using testing::error_of;

namespace {

Tensor pair_of(double value) { return full({2}, value, DType::f64).set_requires_grad(); }

using Body = std::function<Tensor(const Tensor&)>;

// f without its graph; backward computes it again, and goes backward through it.
Tensor again(const Body& f, const Tensor& x) {
  Tensor y;
  {
    const NoGrad guard;
    y = f(x);
  }
  return record("again", y, {x}, [f, x = save(x)](const Tensor& g) {
    const Tensor in = x().detach().clone();
    in.set_requires_grad();
    const GradMode recorded(true);
    f(in).backward(g);
    return in.grad();
  });
}

}  // namespace

TEST_CASE("an inner backward has the outer one's number and callbacks") {
  const Tensor stem = pair_of(2), body = pair_of(3), head = pair_of(5);
  std::set<std::uint64_t> numbers;
  std::string order;
  for (const auto& [name, w] : {std::pair{'s', stem}, {'b', body}, {'h', head}}) {
    w.grad_slot().add_hook([&, name = name](const Tensor&) {
      order += name;
      if (numbers.insert(backward_number()).second) after_backward([&] { order += '.'; });
    });
  }
  sum(again([&](const Tensor& x) { return x * body * body; }, stem * 7.0) * head).backward();
  CHECK(order == "hbs.");
  CHECK(numbers.size() == 1);
  CHECK(stem.grad().to_vector<double>() == std::vector<double>(2, 7 * 3 * 3 * 5));
  CHECK(body.grad().to_vector<double>() == std::vector<double>(2, 2 * 3 * 14 * 5));
  CHECK(head.grad().to_vector<double>() == std::vector<double>(2, 14 * 9));
  CHECK(backward_number() == 0);
}

TEST_CASE("a leaf of both graphs is complete once, when the outer one's part has come too") {
  const Tensor x = pair_of(1), w = pair_of(3);
  std::vector<double> seen;
  w.grad_slot().add_hook([&](const Tensor& grad) { seen.push_back(grad.to_vector<double>()[0]); });
  // w's use in front is older than `again`, so its gradient comes last.
  sum(again([&](const Tensor& h) { return h * w; }, x * w)).backward();
  CHECK(seen == std::vector<double>{6});
}

TEST_CASE("an inner backward that fails leaves the outer one's counts as they were") {
  const Tensor x = pair_of(1), w = pair_of(3);
  int completed = 0;
  w.grad_slot().add_hook([&](const Tensor&) { ++completed; });
  const auto fragile = [&](const Tensor& in) {
    return record("fragile", in * 1.0, {in}, [&](const Tensor& g) {
      const Tensor inner = full({2}, 1, DType::f64).set_requires_grad();
      const GradMode recorded(true);
      const Tensor bad = record("bad", inner * w, {inner, w},
                                [](const Tensor&, Needs) -> Tensors { throw Error("planted"); });
      const Tensor out = sum(bad);
      CHECK(error_of([&] { out.backward(); }) == "planted");
      return g;
    });
  };
  sum(fragile(x * w)).backward();
  CHECK(completed == 1);
  CHECK(w.grad().to_vector<double>() == std::vector<double>(2, 1));
  CHECK(w.grad_slot().expected == 0);
}

TEST_CASE("a backward through a graph that one is walking is an error") {
  const Tensor x = pair_of(1);
  const Tensor y = x * 2.0;
  std::string error;
  x.grad_slot().add_hook(
      [&](const Tensor&) { error = error_of([&] { y.backward(full({2}, 1, DType::f64)); }); });
  sum(y * 3.0).backward({}, true);
  CHECK(error.find("belongs to a backward that is under way") != std::string::npos);
}

TEST_CASE("no two backwards have one number, on whichever thread") {
  std::vector<std::uint64_t> numbers(3);
  const auto run = [&](std::size_t i) {
    const Tensor x = pair_of(1);
    x.grad_slot().add_hook([&numbers, i](const Tensor&) { numbers[i] = backward_number(); });
    sum(x).backward();
  };
  run(0);
  std::thread([&] { run(1); }).join();
  std::thread([&] { run(2); }).join();
  CHECK(std::set<std::uint64_t>(numbers.begin(), numbers.end()).size() == 3);
}

TEST_CASE("leaves_of names every leaf once, and no other") {
  const Tensor a = pair_of(1), b = pair_of(2), unused = pair_of(3);
  const Tensor y = a * b + a, z = a.detach() * 2.0;
  const auto leaves = leaves_of(std::vector{y, a, z});
  REQUIRE(leaves.size() == 2);
  const std::set<const GradSlot*> found{leaves[0].get(), leaves[1].get()};
  CHECK(found == std::set<const GradSlot*>{&a.grad_slot(), &b.grad_slot()});
  sum(y).backward();  // nothing was marked
  CHECK(b.grad().defined());
}
