// SPDX-License-Identifier: Apache-2.0
// What t(), select() and their like copy refuses writes while the tensor lives that it is of, and
// none else does.
#include <peal/autograd/ops/ops.h>
#include <peal/tests/errors.h>

#include "arrays.h"

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

using namespace peal;
using namespace peal::test;
using testing::error_of;

namespace {

bool is_refused(const std::function<void()>& write) {
  return error_of(write).find("that is a copy of another, or of a part of it") != std::string::npos;
}

}  // namespace

TEST_CASE("a copy of a tensor that lives is never written, where PyTorch would write that one") {
  const Tensor x = normal<float>({3, 4}, 1), before = x.clone(), y = ones({4, 3});
  const Tensor turned = x.t(), part = x[{Slice(), 1}];
  const Tensors parts = x.chunk(2, 1);
  for (const auto& write : std::vector<std::function<void()>>{
           [&] { x.select(1, 0).fill_(2); },
           [&] { x.narrow(1, 0, 2).uniform_(); },
           [&] { slice(x, 1, 0, 2).exp_(); },
           [&] { x.split(2, 1)[0].add_(1); },
           [&] { x.unbind(1)[0].sub_(ones({3}), 2); },
           [&] { x.diagonal().fill_(1); },
           [&] {
             x.chunk(2, 1)[1].masked_fill_(ones({3, 2}, DType::boolean), 0);
           },
           [&] { x.t().mul_(2); },
           [&] { x.transpose(0, 1).fill_(2); },
           [&] {
             x.permute({1, 0}).add_(1);
           },
           [&] { x.movedim(0, 1).exp_(); },
           [&] { transpose(x, -1, -2).clamp_(0, 1); },
           [&] { x[{Slice(0, 2)}].t().mul_(2); },
           [&] { einsum("ij->ji", {x}).mul_(2); },
           [&] {
             x.unsqueeze(0).expand({2, 3, 4}).mul_(2);
           },
           [&] { x.unfold(1, 2, 1).fill_(0); },
           // What shares the copy's elements; a copy of a copy.
           [&] { x.t().unsqueeze(0).mul_(2); },
           [&] { x.t().detach().mul_(2); },
           [&] { x.t().detach() *= 2; },
           [&] {
             x.t().reshape({2, 6}).rows(0, 1).zero_();
           },
           [&] { x.t().t().mul_(2); },
           [&] { x.t().narrow(1, 0, 2).t().mul_(2); },
           [&] { (void)exp_(x.t()); },
           [&] { x.t().copy_(y); },
           [&] { x.t() += y; },
           [&] { uniform_(x.t()); },
           // With a name.
           [&] { turned.mul_(2); },
           [&] { turned += y; },
           [&] { turned.sub_(y, 2); },
           [&] { turned.zero_(); },
           [&] { turned.copy_(y); },
           [&] { turned.masked_fill_(turned > 0, 0); },
           [&] { turned.relu_(); },
           [&] { add_(turned, y, 1); },
           [&] { fill_(turned, 1); },
           [&] { normal_(turned); },
           [&] { turned.rows(0, 1).mul_(2); },
           [&] { part.mul_(2); },
           [&] { parts[1].fill_(0); },
       }) {
    CHECK(is_refused(write));
  }
  CHECK(equal(x, before));
  CHECK(equal(turned, before.t()));
}

TEST_CASE("a copy is written once it is a tensor of its own") {
  const Tensor x = normal<float>({3, 4}, 1), before = x.clone();
  const auto turned = [](const Tensor& from) { return (from * 1).t(); };
  CHECK(equal(turned(x).mul_(2), x.t() * 2));  // of what lives no more
  CHECK(equal(turned(x).unsqueeze(0).relu_(), relu(x.t().unsqueeze(0))));
  Tensor y = x * 1;
  y = y.t();
  y += 1;
  CHECK(equal(y, x.t() + 1));
  const Tensor own = x.t().contiguous(), copy = x.t().clone(), named = x.t(),
               of_named = named.contiguous();
  own.mul_(2);
  copy.mul_(2);
  of_named.mul_(2);
  CHECK(equal(own, x.t() * 2));
  CHECK(equal(copy, own));
  CHECK(equal(of_named, own));
  CHECK(equal(named, x.t()));
  const auto given = [&] { return x.t().contiguous(); };
  CHECK(equal(given().mul_(2), own));
  CHECK(x.contiguous().same_as(x));
  x.narrow(1, 4, 0).fill_(1);  // of nothing
  // Layers and operations whose last step is of this kind.
  const Tensor columns = normal<float>({1, 4, 4}, 2);
  const Tensor folded = fold(columns, {2, 2}, {2, 2}, {.padding = 1, .stride = 2});
  CHECK(equal(fold(columns, {2, 2}, {2, 2}, {.padding = 1, .stride = 2}).mul_(2), folded * 2));
  // Recorded, a sum's gradient and a table's among others.
  const Tensor w = x.clone().set_requires_grad();
  Tensor z = (w * 3).t();
  z *= z;
  sum(z).backward();
  CHECK(distance(w.grad(), x * 18) < 1e-5);
  w.zero_grad();
  const Tensor h = w * 3;
  Tensor lost = h.t();
  CHECK(is_refused([&] { lost *= 2; }));
}

TEST_CASE("gradients that come as copies of others' parts are summed") {
  const Tensor x = normal<float>({3, 4}, 1).set_requires_grad(), g = normal<float>({3, 8}, 2);
  const Tensor both = cat({x, x}, 1);
  both.retain_grad();
  both.backward(g, true);
  both.backward(g);
  CHECK(distance(x.grad(), (g.narrow(1, 0, 4) + g.narrow(1, 4, 4)) * 2) < 1e-5);
  x.grad().mul_(0.5);  // as what clips gradients writes
  x.zero_grad();
  const Tensor turned = x.t();
  turned.backward(g.narrow(1, 0, 4).t());
  x.grad().mul_(2);
  CHECK(distance(x.grad(), g.narrow(1, 0, 4) * 2) < 1e-5);
}
