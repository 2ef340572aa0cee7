// SPDX-License-Identifier: Apache-2.0
// Attention on a device against the CPU, beside the op cases: every width of a head that a kernel
// is made for and what serves the others, long sequences, addresses, gradients that nobody wants.
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/ops.h>

#include "both.h"

#include <string>

using namespace peal;
using namespace peal::test;

namespace {

constexpr Device gpu{DeviceType::cuda, 0};

struct Case {
  std::int64_t batch, queries, keys, heads, width;
  bool causal;
  std::int64_t shift = 0;  // of each operand from a boundary, in elements
};

std::string text_of(const Case& c, DType dtype) {
  return concat(dtype, " [", c.batch, ", ", c.queries, " of ", c.keys, ", ", c.heads, " x ",
                c.width, c.causal ? "] causal" : "]", c.shift != 0 ? " shifted" : "");
}

// The result and the gradients of what the bits of `wanted` say: q, k, v.
Tensors attended(const Tensors& x, const Case& c, unsigned wanted) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    if ((wanted >> i & 1) != 0) x[i].set_requires_grad();
  }
  const Tensor y = x.size() == 1
                       ? self_attention(x[0], c.heads, c.causal)
                       : scaled_dot_product_attention(x[0], x[1], x[2], c.heads, c.causal);
  y.backward(placed(random(y.dtype(), y.shape(), 9), y.device(), c.shift));
  Tensors all{y.detach()};
  for (const Tensor& each : x) all.push_back(each.grad());
  return all;
}

void check(DType dtype, const Case& c, unsigned wanted = 7, float factor = 1, double more = 1) {
  CAPTURE(text_of(c, dtype));
  const std::int64_t row = c.heads * c.width;
  std::vector<Shape> shapes = {
      {c.batch, c.queries, row}, {c.batch, c.keys, row}, {c.batch, c.keys, row}};
  if (wanted == 1 && c.queries == c.keys) shapes = {{c.batch, c.queries, 3 * row}};
  Tensors here, there;
  for (const Shape& shape : shapes) {
    Tensor x = random(dtype, shape, static_cast<unsigned>(here.size()) + 1);
    if (here.empty() && factor != 1) x = cast(cast(x, DType::f32) * factor, dtype);
    here.push_back(x);
    there.push_back(placed(x, gpu, c.shift));
  }
  const Tensors expected = attended(here, c, wanted), got = attended(there, c, wanted);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    REQUIRE(got[i].defined() == expected[i].defined());
    if (expected[i].defined()) {
      CHECK(distance(got[i], expected[i]) <= more * bound_of(dtype));
    }
  }
}

}  // namespace

TEST_CASE("attention: heads of any width") {
  for (const DType dtype : floating_types) {
    for (const std::int64_t width : {8, 40, 64, 72, 100, 128, 130}) {
      check(dtype, {1, 37, 70, 2, width, false});
      check(dtype, {1, 70, 37, 1, width, true});
    }
    check(dtype, {2, 33, 33, 2, 64, true, 1});
    check(dtype, {2, 33, 33, 2, 24, true, 1}, 1);
  }
}

TEST_CASE("attention: several blocks of queries and tiles of keys") {
  for (const DType dtype : floating_types) {
    const bool low = is_low_precision(dtype);
    check(dtype, {1, low ? 300 : 140, low ? 300 : 140, 1, 64, true}, 1);
    check(dtype, {2, 130, 200, 1, 16, true});
    check(dtype, {1, 200, 130, 2, 16, true});
    check(dtype, {1, 3, 200, 1, 64, false});
  }
  check(DType::bf16, {1, 160, 160, 1, 128, true}, 1);
}

TEST_CASE("attention: 1024 tokens") {
  check(DType::bf16, {1, 1024, 1024, 1, 64, true}, 1);
  check(DType::f16, {1, 1024, 1024, 1, 64, false}, 1);
}

TEST_CASE("attention: gradients of some operands") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const unsigned wanted : {2u, 3u, 4u, 5u, 6u}) {
      check(dtype, {1, 20, 70, 2, 16, true}, wanted);
    }
  }
}

TEST_CASE("attention: scores that only their difference to the largest keeps finite") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    check(dtype, {1, 70, 70, 1, 64, true}, 7, 100, 4);
  }
}

TEST_CASE("attention keeps a number for a query, not its probabilities") {
  const auto recomputes = kernels(gpu).attention_recomputes;
  const bool some = recomputes != nullptr;
  REQUIRE(some);
  AttentionGeometry o{2, 1024, 1024, 12, 64, true};
  for (const DType dtype : floating_types) CHECK(recomputes(o, dtype));
  o.width = 128;
  for (const DType dtype : floating_types) CHECK(recomputes(o, dtype) == (dtype != DType::f64));
  o.width = 129;
  for (const DType dtype : floating_types) CHECK_FALSE(recomputes(o, dtype));
}
