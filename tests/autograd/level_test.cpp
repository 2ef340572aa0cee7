// SPDX-License-Identifier: Apache-2.0
// The levels of the vectorised loops agree: each that this CPU has, against the baseline, at every
// length around a vector's. Ops are compared level by level in precision_test.cpp.
#include <peal/autograd/kernels/cpu/loops.h>

#include "arrays.h"

#include <doctest/doctest.h>

using namespace peal;
using namespace peal::cpu;
using test::distance;
using test::normal;

namespace {

std::vector<Level> levels() {
  std::vector<Level> out;
  for (const Level level : {Level::avx2, Level::avx512}) {
    if (level <= best_level()) out.push_back(level);
  }
  return out;
}

template <class T>
void check(Level level, std::int64_t n) {
  const Tensor a = normal<T>({n}, 1), b = normal<T>({n}, 2);
  const auto same = [&](auto&& f, double good) {
    const Tensor one = a.clone(), two = a.clone();
    f(Level::baseline, one.data<T>());
    f(level, two.data<T>());
    CHECK(distance(two, one) <= good);
  };
  const double rounding = sizeof(T) == 4 ? 1e-6 : 1e-14;
  for (const Binary op :
       {Binary::add, Binary::sub, Binary::mul, Binary::div, Binary::relu_backward}) {
    for (const Repeat repeat : {Repeat::none, Repeat::left, Repeat::right}) {
      same([&](Level l,
               T* out) { loops<T>(l).binary(op, repeat, out, a.data<T>(), b.data<T>(), n); },
           0);
    }
  }
  for (const Unary op : {Unary::add_scalar, Unary::mul_scalar, Unary::relu}) {
    same([&](Level l, T* out) { loops<T>(l).unary(op, out, a.data<T>(), 1.5, n); }, 0);
  }
  same([&](Level l, T* out) { loops<T>(l).axpy(out, b.data<T>(), 0.3, n); }, rounding);
  same([&](Level l, T* out) { loops<T>(l).fill(out, 2.5, n); }, 0);
  const auto &plain = real_loops<T>(Level::baseline), &wide = real_loops<T>(level);
  CHECK(wide.sum(a.data<T>(), n) == doctest::Approx(plain.sum(a.data<T>(), n)).epsilon(1e-5));
  CHECK(wide.max(a.data<T>(), n) == plain.max(a.data<T>(), n));
  same(
      [&](Level l, T* out) {
        real_loops<T>(l).sgd(out, b.data<T>(), nullptr, {.lr = 0.1, .weight_decay = 0.1}, n);
      },
      rounding);
  same(
      [&](Level l, T* out) {
        const Tensor m = Tensor::zeros({n}, a.dtype()), v = Tensor::zeros({n}, a.dtype());
        real_loops<T>(l).adam(out, b.data<T>(), m.data<T>(), v.data<T>(),
                              {.lr = 0.1, .weight_decay = 0.1}, n);
      },
      rounding);
  std::vector<std::uint8_t> mask_one(static_cast<std::size_t>(n)), mask_two = mask_one;
  same(
      [&](Level l, T* out) {
        auto& mask = l == level ? mask_two : mask_one;
        real_loops<T>(l).dropout(out, mask.data(), a.data<T>(), {5, 12}, 4, 1u << 31, 2.0, n);
      },
      0);
  CHECK(mask_one == mask_two);
  same(
      [&](Level l, T* out) {
        real_loops<T>(l).dropout_backward(out, b.data<T>(), mask_one.data(), 2.0, n);
      },
      0);
}

}  // namespace

TEST_CASE("every level computes what the baseline does") {
  for (const Level level : levels()) {
    for (const std::int64_t n : {1, 3, 7, 8, 15, 16, 17, 31, 33, 64, 65, 127, 1025}) {
      check<float>(level, n);
      check<double>(level, n);
    }
  }
}

TEST_CASE("PEAL_CPU_LEVEL is obeyed as far as the CPU goes") {
  const char* wanted = std::getenv("PEAL_CPU_LEVEL");
  const std::string text = wanted ? wanted : "avx512";
  const Level level = text == "baseline" ? Level::baseline
                      : text == "avx2"   ? Level::avx2
                                         : Level::avx512;
  CHECK(current_level() == std::min(level, best_level()));
}
