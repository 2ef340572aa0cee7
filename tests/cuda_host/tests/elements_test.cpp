// SPDX-License-Identifier: Apache-2.0
// Entries that go over elements: CUDA's kernels against the CPU's, all dtypes and odd sizes.
#include <peal/autograd/kernels/binary_functions.h>

#include "both.h"

#include <limits>

using namespace peal;
using namespace peal::test;

namespace {

const std::vector<std::int64_t> sizes = {0, 1, 2, 3, 5, 8, 16, 17, 31, 257, 4099};

struct Pairing {
  Shape out, a, b;
};
const std::vector<Pairing> pairings = {
    {{0}, {0}, {1}},
    {{}, {}, {}},
    {{1031}, {1031}, {1031}},
    {{17}, {17}, {}},
    {{16}, {}, {16}},
    {{7, 5}, {7, 5}, {5}},
    {{6, 16}, {16}, {6, 16}},
    {{6, 16}, {6, 16}, {6, 1}},
    {{6, 33}, {6, 1}, {1, 33}},
    {{3, 4, 8}, {3, 4, 8}, {4, 1}},
    {{3, 4, 16}, {3, 4, 16}, {3, 1, 16}},
    {{2, 3, 4, 5}, {2, 3, 4, 5}, {3, 1, 5}},
    {{2, 1, 4, 32}, {1, 1, 4, 1}, {2, 1, 1, 32}},
    {{2, 1, 2, 1, 2, 1, 2, 3}, {2, 1, 2, 1, 2, 1, 2, 1}, {1, 1, 2, 1, 1, 1, 2, 3}},
};

double with_a_half(double x) { return std::abs(x) + 0.5; }

// The numbers of f32 half way from each number of T to the next one of its bits.
template <class T>
Tensor middles() {
  const Tensor out = Tensor::empty({1 << 16}, DType::f32, Device{});
  for (std::uint32_t i = 0; i < 1 << 16; ++i) {
    T low, high;
    low.bits = static_cast<std::uint16_t>(i);
    high.bits = static_cast<std::uint16_t>(i + 1);
    out.data<float>()[i] = static_cast<float>(low) / 2 + static_cast<float>(high) / 2;
  }
  return out;
}

template <class T>
Tensor every() {
  const Tensor out = Tensor::empty({1 << 16}, dtype_of<T>, Device{});
  for (std::uint32_t i = 0; i < 1 << 16; ++i) {
    out.data<T>()[i].bits = static_cast<std::uint16_t>(i);
  }
  return out;
}

}  // namespace

// A device has instructions for it, the host has arithmetic: the same numbers.
TEST_CASE("every number of two bytes, and what lies half way between two") {
  on_both(&Kernels::cast, 0, 1, random(DType::f32, {1 << 16}, 1), every<Half>());
  on_both(&Kernels::cast, 0, 1, random(DType::f32, {1 << 16}, 1), every<BFloat16>());
  on_both(&Kernels::cast, 0, 1, random(DType::f16, {1 << 16}, 1), middles<Half>());
  on_both(&Kernels::cast, 0, 1, random(DType::bf16, {1 << 16}, 1), middles<BFloat16>());
}

TEST_CASE("fill, arange and expand") {
  for (const DType dtype : all_types) {
    for (const std::int64_t n : sizes) {
      on_both(&Kernels::fill, 0, 1, random(dtype, {n}, 1), 1.0);
      if (dtype == DType::boolean) continue;
      on_both(&Kernels::arange, 0, 1, random(dtype, {std::min<std::int64_t>(n, 100)}, 1));
      if (!is_floating(dtype)) continue;
      on_both(&Kernels::expand, 0, 1, random(dtype, {3, n}, 1), random(dtype, {3, 1}, 2), 0.5);
      on_both(&Kernels::expand, 0, 1, random(dtype, {3, n}, 1), random(dtype, {n}, 2), 0.5);
    }
  }
}

TEST_CASE("binary, compare and where, broadcast") {
  for (const Pairing& pair : pairings) {
    CAPTURE(concat(pair.out, " of ", pair.a, " and ", pair.b));
    for (const DType dtype : all_types) {
      CAPTURE(concat(dtype));
      const Tensor a = random(dtype, pair.a, 1), b = random(dtype, pair.b, 2);
      for (const Compare op :
           {Compare::eq, Compare::ne, Compare::lt, Compare::le, Compare::gt, Compare::ge}) {
        if (dtype != DType::f32 && op > Compare::ne) break;
        on_both(&Kernels::compare, 0, 1, op, random(DType::boolean, pair.out, 3), a, b);
      }
      const Tensor condition = random(DType::boolean, pair.a, 4);
      on_both(&Kernels::where, 0, 1, random(dtype, pair.out, 3), condition, a, b);
      if (dtype == DType::boolean) continue;
      for (const Binary op :
           {Binary::add, Binary::sub, Binary::mul, Binary::div, Binary::relu_backward}) {
        if (op == Binary::div && !is_floating(dtype)) continue;
        if (dtype != DType::f32 && pair.out.dim() > 2) break;
        on_both(&Kernels::binary, bound_of(dtype), 1, op, random(dtype, pair.out, 3), a, b);
      }
    }
  }
}

TEST_CASE("unary and axpy") {
  for (const DType dtype : number_types) {
    for (const std::int64_t n : sizes) {
      const Tensor x = random(dtype, {n}, 1);
      for (const Unary op : {Unary::add_scalar, Unary::mul_scalar, Unary::relu}) {
        on_both(&Kernels::unary, 0, 1, op, random(dtype, {n}, 2), x, 2.0);
      }
      // Division, not a product with the reciprocal: the same bits.
      if (is_floating(dtype)) {
        on_both(&Kernels::unary, 0, 1, Unary::div_scalar, random(dtype, {n}, 2), x, 3.0);
      }
      on_both(&Kernels::axpy, bound_of(dtype), 1, x, random(dtype, {n}, 2), 3.0);
    }
  }
}

TEST_CASE("a NaN passes relu, clamp, compare and backward as on the CPU") {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN(),
                  infinity = std::numeric_limits<float>::infinity();
  const Tensor x = tensor_of<float>({nan, 1, -1, infinity, -infinity, 0}, {6});
  const Tensor y = tensor_of<float>({1, nan, nan, 1, 1, nan}, {6});
  on_both(&Kernels::unary, 0, 1, Unary::relu, random(DType::f32, {6}, 1), x, 0.0);
  on_both(&Kernels::binary, 0, 1, Binary::relu_backward, random(DType::f32, {6}, 1), y, x);
  for (const Compare op : {Compare::eq, Compare::ne, Compare::lt, Compare::ge}) {
    on_both(&Kernels::compare, 0, 1, op, random(DType::boolean, {6}, 1), x, y);
  }
  on_both(&Kernels::pointwise, 0, 1, Pointwise::clamp, random(DType::f32, {6}, 1), x, -0.5, 0.5);
  for (const PairLoss which :
       {PairLoss::squared_error, PairLoss::smooth_l1, PairLoss::bce_with_logits}) {
    on_both(&Kernels::pair_loss, 1e-6, 1, which, random(DType::f32, {6}, 1), x,
            map(random(DType::f32, {6}, 2), magnitude), 1.0);
  }
}

TEST_CASE("functions of one element, and back") {
  constexpr Pointwise all[] = {
#define POINTWISE(name, ...) Pointwise::name,
#include <peal/autograd/kernels/pointwise.def>
  };
  for (const DType dtype : floating_types) {
    for (const Pointwise op : all) {
      CAPTURE(static_cast<int>(op));
      for (const std::int64_t n : {0, 9, 257}) {
        // Of some there is no number below 0 or 1.
        for (double (*values)(double) : {+[](double x) { return x / 4; }, with_a_half}) {
          const Tensor x = map(random(dtype, {n}, 1), values), out = random(dtype, {n}, 2);
          for (const double s : {-0.4, 2.0, 0.0}) {
            on_both(&Kernels::pointwise, bound_of(dtype), 1, op, out, x, s, 0.7);
            on_both(&Kernels::pointwise_backward, bound_of(dtype), 1, op, out,
                    random(dtype, {n}, 3), x, s, 0.7);
            if (op != Pointwise::pow) break;
          }
        }
      }
    }
  }
}

TEST_CASE("functions of two elements, broadcast") {
  for (const DType dtype : all_types) {
    for (int k = 0; k <= static_cast<int>(BinaryMath::xlogy); ++k) {
      const auto op = static_cast<BinaryMath>(k);
      if (!serves(op, dtype)) continue;
      CAPTURE(concat(k, " of ", dtype));
      for (const Pairing& pair : {pairings[2], pairings[6], pairings[8]}) {
        const Tensor a = random(dtype, pair.a, 1), b = random(dtype, pair.b, 2);
        on_both(&Kernels::binary_math, bound_of(dtype), 1, op, random(dtype, pair.out, 3), a, b);
      }
    }
  }
}

TEST_CASE("losses of pairs, and back") {
  for (const DType dtype : floating_types) {
    const DType within = computed_in(dtype);
    for (const PairLoss which :
         {PairLoss::squared_error, PairLoss::smooth_l1, PairLoss::bce_with_logits}) {
      for (const std::int64_t n : {0, 1, 17, 257}) {
        const Tensor x = random(dtype, {n}, 1), target = map(random(dtype, {n}, 2), magnitude);
        on_both(&Kernels::pair_loss, bound_of(dtype), 1, which, random(within, {n}, 3), x, target,
                0.7);
        const Tensor dx = random(dtype, {n}, 4), each = random(dtype, {n}, 5),
                     one = random(dtype, {}, 6);
        on_both(&Kernels::pair_loss_backward, bound_of(dtype), 2, which, dx, dx, each, x, target,
                0.7, 0.5);
        if (n > 1)
          on_both(&Kernels::pair_loss_backward, bound_of(dtype), 2, which, dx, Tensor(), one, x,
                  target, 0.7, 0.5);
        on_both(&Kernels::pair_loss_backward, bound_of(dtype), 2, which, Tensor(), dx, each, x,
                target, 0.7, 0.5);
      }
    }
  }
}

TEST_CASE("cast between all types") {
  for (const DType from : all_types) {
    for (const DType to : all_types) {
      CAPTURE(concat(from, " to ", to));
      for (const std::int64_t n : {0, 1, 15, 1041}) {
        on_both(&Kernels::cast, 0, 1, random(to, {n}, 1), map(random(from, {n}, 2), magnitude));
      }
    }
  }
}

TEST_CASE("uniform, normal and dropout have the CPU's words") {
  for (const DType dtype : floating_types) {
    for (const std::int64_t n : sizes) {
      for (const std::uint64_t offset :
           {std::uint64_t{0}, std::uint64_t{6}, std::uint64_t{1} << 33}) {
        const RandomRange words{7, offset};
        const Tensor out = random(dtype, {n}, 1);
        on_both(&Kernels::uniform, 0, 1, out, words, -1.0, 3.0);
        on_both(&Kernels::normal, bound_of(dtype), 1, out, words);
      }
      const RandomRange words{9, 8};
      const Tensor mask = random(DType::u8, {n}, 2);
      on_both(&Kernels::dropout, 0, 2, random(dtype, {n}, 1), mask, random(dtype, {n}, 3), words,
              0x60000000u, 1.6);
      on_both(&Kernels::dropout_backward, 0, 1, random(dtype, {n}, 1), random(dtype, {n}, 3), mask,
              1.6);
    }
  }
}

TEST_CASE("copies between dense and strided arrays") {
  struct Case {
    Shape dense;
    Steps steps;
    std::int64_t at, other;  // elements of the strided array
  };
  const std::vector<Case> cases = {
      {{70, 33}, {1, 70}, 0, 70 * 33},                       // a transpose
      {{3, 40, 37}, {37 * 40, 1, 40}, 0, 3 * 40 * 37},       // of planes
      {{37, 5, 40}, {1, 37, 37 * 5}, 0, 37 * 5 * 40},        // the first and the last
      {{2, 9, 33, 8}, {2376, 8, 72, 1}, 0, 2 * 9 * 33 * 8},  // heads: rows stay whole
      {{2, 9, 33, 10}, {2970, 10, 90, 1}, 0, 2970 * 2},
      {{5, 4}, {16, 1}, 4, 80},  // columns of a matrix
      {{5, 3}, {16, 2}, 1, 80},  // every other one
      {{6, 7}, {1, 6}, 0, 42},   // too small for squares
      {{100, 9}, {1, 128}, 3, 9 * 128},
      {{1}, {1}, 5, 9},
      {{}, {}, 0, 1},
      {{0, 4}, {4, 1}, 0, 8},
      {{257, 16}, {16, 1}, 0, 257 * 16},
  };
  for (const DType dtype : all_types) {
    for (const Case& each : cases) {
      CAPTURE(concat(dtype, " ", each.dense));
      const Tensor dense = random(dtype, each.dense, 1), other = random(dtype, {each.other}, 2);
      on_both(&Kernels::read_strided, 0, 1, dense, other, each.steps, each.at);
      on_both(&Kernels::write_strided, 0, 1, other, dense, each.steps, each.at);
    }
  }
}
