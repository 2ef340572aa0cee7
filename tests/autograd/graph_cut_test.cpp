// SPDX-License-Identifier: Apache-2.0
// No graph is cut without a word: copies and parts are recorded, writes of what wants a gradient
// into something else are errors, and so is a write that nobody can see.
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/tape.h>
#include <peal/tests/errors.h>

#include "arrays.h"

#include <doctest/doctest.h>

using namespace peal;
using testing::contains;
using testing::error_of;

namespace {

Tensor leaf(std::vector<float> values) {
  const auto n = static_cast<std::int64_t>(values.size());
  return Tensor::from(values, {n}).set_requires_grad();
}

}  // namespace

TEST_CASE("a clone is on the tape") {
  const Tensor a = leaf({1, 1});
  sum((a * 2.0).clone() * a).backward();
  CHECK(a.grad().to_vector<float>() == std::vector<float>{4, 4});
  a.zero_grad();
  sum(a.clone()).backward();  // of a leaf
  CHECK(a.grad().to_vector<float>() == std::vector<float>{1, 1});
  CHECK(!a.detach().clone().requires_grad());
  const NoGrad guard;
  CHECK(!a.clone().requires_grad());
}

TEST_CASE("rows are on the tape, and share storage") {
  const Tensor a = leaf({1, 1});
  sum((a * 2.0).rows(0, 1) * (a * 1.0).rows(0, 1) + (a * 1.0).rows(1, 2)).backward();
  CHECK(a.grad().to_vector<float>() == std::vector<float>{4, 1});
  const Tensor x = Tensor::from(test::normals(15, 3), {5, 3}).set_requires_grad();
  const Tensor part = x.rows(1, 3);
  CHECK(part.storage() == x.storage());
  sum(part * part).backward();
  std::vector<float> expected(15, 0.0f);
  for (std::size_t i = 3; i < 9; ++i) expected[i] = 2 * x.to_vector<float>()[i];
  CHECK(x.grad().to_vector<float>() == expected);
  CHECK(!x.detach().rows(1, 3).requires_grad());
  CHECK(error_of([&] { part.zero_(); }).find("not recorded") != std::string::npos);
}

TEST_CASE("a part of a sum's paths through rows keeps its gradient") {
  const Tensor y = leaf({1, 2, 3}), z = y * 2.0;
  (sum(y.rows(0, 1)) + sum(z)).backward();
  CHECK(y.grad().to_vector<float>() == std::vector<float>{3, 2, 2});
}

TEST_CASE("to() the device where a tensor is changes nothing") {
  const Tensor y = leaf({1, 2}) * 2.0;
  CHECK(y.to(Device{}).same_as(y));
}

TEST_CASE("what wants a gradient is not written into something else") {
  const Tensor y = leaf({1, 2}) * 2.0, total = Tensor::zeros({2});
  const std::string words = "whose gradient is wanted, would be written into another";
  CHECK(contains(error_of([&] { total.copy_(y); }), "copy_: "));
  CHECK(contains(error_of([&] { total.copy_(y); }), words));
  CHECK(contains(error_of([&] { add_(total, y); }), words));
  total.copy_(y.detach());
  add_(total, y.detach());
  CHECK(total.to_vector<float>() == std::vector<float>{4, 8});
  const NoGrad guard;
  add_(total, y);
  CHECK(total.to_vector<float>() == std::vector<float>{6, 12});
}

TEST_CASE("writing a temporary copy is an error that names rows(), not a lost write") {
  const Tensor z = Tensor::zeros({3, 2});
  const std::string words = "would be written, and the";  // other would not see it; values lost
  for (const auto& write : std::vector<std::function<void()>>{
           [&] { fill_(select(z, 0, 0), 1); },
           [&] { fill_(narrow(z, 0, 0, 1), 1); },
           [&] {
             slice(z, 0, 0, 2).copy_(ones({2, 2}));
           },
           [&] { slice(z, 0, 0, 2).zero_(); },
           [&] {
             add_(transpose(z, 0, 1), ones({2, 3}));
           },
           [&] { mul_(z.clone(), 2); },
           [&] { split(z, 1)[0].zero_(); },
           [&] { fill_(split(z, 1, 1).at(1), 1); },
           [&] {
             mul_(split(z, std::vector<std::int64_t>{1, 2}).back(), 2);
           },
           [&] {
             add_(split(z, 1).front(), ones({1, 2}));
           },
       }) {
    CHECK(contains(error_of(write), words));
    CHECK(contains(error_of(write), "rows(begin, end)"));
  }
  CHECK(z.to_vector<float>() == std::vector<float>(6, 0.0f));
}

TEST_CASE("writing what shares storage, or has a name, is fine") {
  const Tensor z = Tensor::zeros({3, 2});
  fill_(z.rows(0, 1), 1);
  fill_(reshape(z, {6}).rows(5, 6), 2);
  add_(z.detach(), ones({3, 2}));
  z.rows(1, 2).copy_(full({1, 2}, 7.));
  CHECK(z.to_vector<float>() == std::vector<float>{2, 2, 7, 7, 1, 3});
  const Tensor y = slice(z, 0, 0, 1).clone();
  mul_(y, 3);
  CHECK(y.to_vector<float>() == std::vector<float>{6, 6});
  const Tensors parts = split(ones({2, 2}), 1);  // of what nobody holds any more
  parts[0].zero_();
  CHECK(parts[0].to_vector<float>() == std::vector<float>(2, 0.0f));
  CHECK(parts[1].to_vector<float>() == std::vector<float>(2, 1.0f));
  float own[2] = {1, 2};
  fill_(Tensor::from_blob(own, {2}, DType::f32), 5);  // memory of the caller's
  CHECK(own[1] == 5);
  const Tensor w = ones({2}).set_requires_grad();
  sum(w).backward();
  mul_(w.grad(), 4);
  CHECK(w.grad().to_vector<float>() == std::vector<float>{4, 4});
}
