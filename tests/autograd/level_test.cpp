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
  for (int rule = 0; rule <= static_cast<int>(Rule::lion); ++rule) {
    CAPTURE(rule);
    same(
        [&](Level l, T* out) {
          const RuleStep step{.rule = static_cast<Rule>(rule),
                              .rate = 0.1,
                              .weight_decay = 0.1,
                              .shrink = 0.9,
                              .beta1 = 0.8,
                              .beta2 = 0.7,
                              .eps = 1e-3,
                              .root_scale = 1.5,
                              .grad_rate = 0.3};
          const Tensor first = Tensor::zeros({n}, a.dtype()),
                       second = Tensor::zeros({n}, a.dtype()),
                       third = Tensor::zeros({n}, a.dtype());
          const int states = states_of(step.rule);
          real_loops<T>(l).rule_step(out, b.data<T>(), first.data<T>(),
                                     states > 1 ? second.data<T>() : nullptr,
                                     states > 2 ? third.data<T>() : nullptr, step, n);
        },
        4 * rounding);
  }
  std::vector<std::uint8_t> mask_one(static_cast<std::size_t>(n)), mask_two = mask_one;
  same(
      [&](Level l, T* out) {
        auto& mask = l == level ? mask_two : mask_one;
        masked_loops<T>(l).dropout(out, mask.data(), a.data<T>(), {5, 12}, 4, 1u << 31, 2.0, n);
      },
      0);
  CHECK(mask_one == mask_two);
  same(
      [&](Level l, T* out) {
        masked_loops<T>(l).dropout_backward(out, b.data<T>(), mask_one.data(), 2.0, n);
      },
      0);
}

// Sizes around a tile's, a transposed and not, onto what is there and not; nothing is written
// beside the result.
template <class T>
void check_products(Level level) {
  constexpr std::int64_t row = 131;
  const Tensor a = normal<T>({row, row}, 1), b = normal<T>({row, row}, 2);
  for (const std::int64_t m : {1, 5, 6, 13}) {
    for (const std::int64_t n : {1, 4, 7, 16, 33, 63, 64, 65, 113}) {
      for (const std::int64_t k : {0, 1, 3, 20}) {
        for (const bool transposed : {false, true}) {
          for (const bool add : {false, true}) {
            const Tensor one = normal<T>({13, row}, 3), two = one.clone();
            const SmallProduct o{m,   n,   k,  transposed ? 1 : row, transposed ? row : 1,
                                 row, row, row};
            product_loops<T>(level).multiply(one.data<T>(), a.data<T>(), b.data<T>(),
                                             add ? one.data<T>() : nullptr, o);
            for (std::int64_t i = 0; i < m; ++i) {
              for (std::int64_t j = 0; j < n; ++j) {
                double sum = add ? two.data<T>()[i * row + j] : 0.0;
                for (std::int64_t p = 0; p < k; ++p) {
                  sum += double{a.data<T>()[i * o.row_a + p * o.step_a]} *
                         double{b.data<T>()[p * row + j]};
                }
                two.data<T>()[i * row + j] = static_cast<T>(sum);
              }
            }
            CHECK(distance(one, two) <= (sizeof(T) == 4 ? 2e-6 : 1e-14));
          }
        }
      }
    }
  }
  for (const std::int64_t m : {1, 3, 4, 9}) {
    for (const std::int64_t n : {1, 2, 3, 4, 7}) {
      for (const std::int64_t k : {1, 15, 16, 17, 100}) {
        for (const bool add : {false, true}) {
          const Tensor one = normal<T>({13, row}, 3), two = one.clone();
          product_loops<T>(level).multiply_dots(one.data<T>(), a.data<T>(), b.data<T>(),
                                                add ? one.data<T>() : nullptr,
                                                {m, n, k, row, 1, row, row, row});
          for (std::int64_t i = 0; i < m; ++i) {
            for (std::int64_t j = 0; j < n; ++j) {
              double sum = add ? two.data<T>()[i * row + j] : 0.0;
              for (std::int64_t p = 0; p < k; ++p) {
                sum += double{a.data<T>()[i * row + p]} * double{b.data<T>()[j * row + p]};
              }
              two.data<T>()[i * row + j] = static_cast<T>(sum);
            }
          }
          CHECK(distance(one, two) <= (sizeof(T) == 4 ? 4e-6 : 1e-14));
        }
      }
    }
  }
  for (const std::int64_t rows : {1, 15, 16, 17, 40}) {
    for (const std::int64_t columns : {1, 8, 31, 64}) {
      const Tensor out = normal<T>({64, row}, 4), expected = out.clone();
      product_loops<T>(level).transpose(out.data<T>(), a.data<T>(), rows, columns, row, row);
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < columns; ++j) {
          expected.data<T>()[j * row + i] = a.data<T>()[i * row + j];
        }
      }
      CHECK(distance(out, expected) == 0);
    }
  }
}

// The unseen is not looked at, whatever is there.
void check_softmax(Level level) {
  constexpr std::int64_t rows = 13, row = 144;
  for (const std::int64_t n : {1, 5, 16, 100, 128}) {
    for (const std::int64_t count : {std::int64_t{1}, n}) {
      const Tensor x = normal<float>({rows, row}, 5), out = normal<float>({rows, row}, 6);
      const Tensor expected = out.clone();
      for (std::int64_t i = 0; i < rows; ++i) {
        float *from = x.data<float>() + i * row, *to = expected.data<float>() + i * row;
        const std::int64_t seen = std::min(n, count + i);
        std::fill(from + seen, from + row, i % 2 == 0 ? INFINITY : NAN);
        double total = 0;
        for (std::int64_t j = 0; j < n; ++j) {
          total += to[j] = j < seen ? std::exp(0.5f * from[j]) : 0.0f;
        }
        for (std::int64_t j = 0; j < n; ++j) to[j] = static_cast<float>(to[j] / total);
      }
      math_loops(level).softmax_scaled(out.data<float>(), x.data<float>(),
                                       {rows, n, row, row, count, true, 0.5f});
      CHECK(distance(out, expected) < 1e-6);
    }
  }
}

// What cross_entropy is made of, at lengths around a vector's and past the blocks of the sums.
void check_exponentials(Level level) {
  for (const std::int64_t n : {1, 15, 16, 17, 33, 1024, 1030, 2500}) {
    const Tensor x = normal<float>({n}, 1), expected = x.clone(), other = x.clone();
    const float* from = x.data<float>();
    double total = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const double power = std::exp(double{from[i]} - 2.5);
      total += power;
      expected.data<float>()[i] = static_cast<float>(0.75 * power - 0.125);
    }
    CHECK(math_loops(level).sum_of_exp(from, 2.5f, n) == doctest::Approx(total).epsilon(1e-6));
    math_loops(level).exp_scaled(other.data<float>(), from, 2.5f, 0.75f, 0.125f, n);
    CHECK(distance(other, expected) < 1e-6);
    math_loops(level).exp_scaled(x.data<float>(), from, 2.5f, 0.75f, 0.125f, n);
    CHECK(distance(x, expected) < 1e-6);
  }
  // What is no normal number is 0, and the least that is one is no other.
  const std::vector<float> least{
      -std::numeric_limits<float>::infinity(), -1e30f, -100, -87.34f, -87.33f, 0, NAN};
  std::vector<float> out(least.size());
  math_loops(level).exp_scaled(out.data(), least.data(), 0, 1, 0, std::ssize(out));
  for (std::size_t i = 0; i < 4; ++i) CHECK(out[i] == 0);
  CHECK(double{out[4]} == doctest::Approx(std::exp(double{least[4]})).epsilon(3e-7));
  CHECK(out[5] == 1);
  CHECK(std::isnan(out[6]));
  // Nor in whole vectors, however far below.
  std::vector<float> below(1000);
  for (std::size_t i = 0; i < below.size(); ++i) {
    below[i] = -87.34f * std::pow(1.1f, static_cast<float>(i));
  }
  CHECK(below.back() == -std::numeric_limits<float>::infinity());
  CHECK(math_loops(level).sum_of_exp(below.data(), 0, std::ssize(below)) == 0);
  math_loops(level).exp_scaled(below.data(), below.data(), 0, 1, 0, std::ssize(below));
  CHECK(below == std::vector<float>(below.size()));
}

// Parts of rows from a logarithm; what is beside them is not written.
void check_shares_again(Level level) {
  for (const std::int64_t n : {1, 5, 16, 100, 128}) {
    for (const std::int64_t count : {std::int64_t{0}, (n + 1) / 2, n}) {
      const Tensor x = normal<float>({160}, 7), expected = x.clone();
      float* to = expected.data<float>();
      for (std::int64_t i = 0; i < n; ++i) {
        to[i] = i < count ? 0.75f * std::exp(0.5f * (to[i] - 2.5f)) : 0.0f;
      }
      math_loops(level).exp_part(x.data<float>(), 0.5f, 2.5f, 0.75f, count, n);
      CHECK(distance(Tensor::from(std::vector<float>(x.data<float>(), x.data<float>() + n), {n}),
                     Tensor::from(std::vector<float>(to, to + n), {n})) < 1e-6);
      CHECK(x.data<float>()[(n + 15) / 16 * 16] == to[(n + 15) / 16 * 16]);
    }
  }
}

template <class T>
void check_changed_scores(Level level) {
  constexpr std::int64_t n = 37;
  const auto hidden = -std::numeric_limits<T>::infinity();
  bool shown[n];
  for (std::int64_t i = 0; i < n; ++i) shown[i] = i % 3 != 1;
  const Tensor x = normal<T>({n}, 1), added = normal<T>({n}, 2), expected = x.clone();
  T *to = expected.data<T>(), *at = x.data<T>();
  for (std::int64_t i = 0; i < n; ++i) {
    to[i] = shown[i] ? to[i] * T(0.5) + added.data<T>()[i] : hidden;
  }
  const auto change = product_loops<T>(level).change_scores;
  CHECK(change(at, 0.5, added.data<T>(), shown, n));
  CHECK(distance(x, expected) < 1e-6);
  CHECK(change(at, 1, nullptr, shown, n));
  CHECK(distance(x, expected) < 1e-6);
  CHECK_FALSE(change(at + 1, 1, nullptr, nullptr, 1));
  std::fill(shown, shown + n, false);
  CHECK_FALSE(change(at, 1, nullptr, shown, n));
  at[n - 1] = NAN;  // not hidden: it has to be seen in the result
  CHECK(change(at, 1, nullptr, nullptr, n));
}

// Every f16 and bf16 there is, and f32 numbers of all sizes with their roundings.
template <class T>
void check_width(Level level) {
  std::vector<T> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<std::uint16_t>(i);
  std::vector<float> wide(all.size());
  width_loops<T>(level).widen(wide.data(), all.data(), 65536);
  std::vector<float> numbers;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 65521) {
    numbers.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  for (const T value : all) {  // halfway to the next, and beside it
    const auto next = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    const std::uint32_t half = std::is_same_v<T, BFloat16> ? 0x8000 : 0x1000;
    for (const std::uint32_t more : {half - 1, half, half + 1}) {
      numbers.push_back(std::bit_cast<float>(next + more));
    }
  }
  std::vector<T> narrow(numbers.size());
  width_loops<T>(level).narrow(narrow.data(), numbers.data(),
                               static_cast<std::int64_t>(numbers.size()));
  int wrong = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const float expected = static_cast<float>(all[i]);
    wrong += std::isnan(expected)
                 ? !std::isnan(wide[i])
                 : std::bit_cast<std::uint32_t>(wide[i]) != std::bit_cast<std::uint32_t>(expected);
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const T expected(numbers[i]);
    wrong += std::isnan(numbers[i]) ? !std::isnan(static_cast<float>(narrow[i]))
                                    : narrow[i].bits != expected.bits;
  }
  CHECK(wrong == 0);
}

// Lengths past what is widened together.
template <class T>
void check_narrow(Level level) {
  for (const std::int64_t n : {1, 17, 1023, 1024, 2500}) {
    const Tensor a = normal<T>({n}, 1), b = normal<T>({n}, 2);
    const T *left = a.data<T>(), *right = b.data<T>();
    int wrong = 0;
    const auto compare = [&](const T* got, auto expected) {
      for (std::int64_t i = 0; i < n; ++i) wrong += got[i].bits != T(expected(i)).bits;
    };
    const auto f = [](const T* x, std::int64_t i) { return static_cast<float>(x[i]); };
    const Tensor out = a.clone();
    T* to = out.data<T>();
    loops<T>(level).binary(Binary::mul, Repeat::none, to, to, right, n);
    compare(to, [&](std::int64_t i) { return f(left, i) * f(right, i); });
    loops<T>(level).binary(Binary::sub, Repeat::left, to, left, right, n);
    compare(to, [&](std::int64_t i) { return f(left, 0) - f(right, i); });
    loops<T>(level).binary(Binary::div, Repeat::right, to, left, right, n);
    compare(to, [&](std::int64_t i) { return f(left, i) / f(right, 0); });
    loops<T>(level).unary(Unary::relu, to, left, 0, n);
    compare(to, [&](std::int64_t i) { return std::max(f(left, i), 0.0f); });
    loops<T>(level).unary(Unary::add_scalar, to, left, 1.5, n);
    compare(to, [&](std::int64_t i) { return f(left, i) + 1.5f; });
    std::copy_n(left, n, to);
    loops<T>(level).axpy(to, right, 0.5, n);
    compare(to, [&](std::int64_t i) { return f(left, i) + 0.5f * f(right, i); });
    loops<T>(level).fill(to, 0.1, n);
    compare(to, [&](std::int64_t) { return 0.1f; });
    CHECK(wrong == 0);
  }
}

// What the loops of bf16 give is what those of f32 give of the same, rounded: of every bf16 there
// is, numbers or not.
class InBf16 {
 public:
  InBf16(Level level, std::int64_t n) : level_(level), n_(n) {
    for (std::int64_t i = 0; i < n; ++i) {
      left_.emplace_back().bits = static_cast<std::uint16_t>(i * 40503);
      right_.emplace_back().bits = static_cast<std::uint16_t>(i * 25173 + 13849);
      wide_left_.push_back(left_.back());
      wide_right_.push_back(right_.back());
    }
  }

  // f(loops' type, out, left, right) in both; out holds what left does.
  template <class F>
  void check(const std::string& what, F&& f) const {
    std::vector<BFloat16> got = left_;
    std::vector<float> expected = wide_left_;
    f(BFloat16(), got.data(), left_.data(), right_.data());
    f(float(), expected.data(), wide_left_.data(), wide_right_.data());
    CAPTURE(what);
    CHECK(differences(got, expected) == 0);
  }
  static int differences(const std::vector<BFloat16>& got, const std::vector<float>& expected) {
    int wrong = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      wrong += std::isnan(expected[i]) ? !std::isnan(static_cast<float>(got[i]))
                                       : got[i].bits != BFloat16(expected[i]).bits;
    }
    return wrong;
  }

  void check_all() const {
    for (const Binary op :
         {Binary::add, Binary::sub, Binary::mul, Binary::div, Binary::relu_backward}) {
      for (const Repeat repeat : {Repeat::none, Repeat::left, Repeat::right}) {
        check("binary", [&]<class T>(T, T* out, const T* a, const T* b) {
          loops<T>(level_).binary(op, repeat, out, a, b, n_);
        });
      }
      check("binary in place", [&]<class T>(T, T* out, const T*, const T* b) {
        loops<T>(level_).binary(op, Repeat::none, out, out, b, n_);
      });
    }
    for (const Unary op : {Unary::add_scalar, Unary::mul_scalar, Unary::div_scalar, Unary::relu}) {
      check("unary", [&]<class T>(T, T* out, const T*, const T* b) {
        loops<T>(level_).unary(op, out, b, 0.3, n_);
      });
    }
    check("axpy", [&]<class T>(T, T* out, const T*, const T* b) {
      loops<T>(level_).axpy(out, b, 0.3, n_);
    });
    for (const Pointwise op : {Pointwise::gelu, Pointwise::gelu_tanh, Pointwise::tanh,
                               Pointwise::sigmoid, Pointwise::silu, Pointwise::softplus}) {
      check("math", [&]<class T>(T, T* out, const T*, const T* b) {
        CHECK(pointwise_loops<T>(level_).math(op, out, b, 1, 20, n_));
      });
      check("math_backward", [&]<class T>(T, T* out, const T* a, const T* b) {
        pointwise_loops<T>(level_).math_backward(op, out, a, b, 1, 20, n_);
      });
    }
    std::vector<std::uint8_t> kept(left_.size()), kept_wide = kept;
    check("dropout", [&]<class T>(T, T* out, const T*, const T* b) {
      masked_loops<T>(level_).dropout(out,
                                      std::is_same_v<T, float> ? kept_wide.data() : kept.data(), b,
                                      {5, 12}, 4, 1u << 31, 1.25, n_);
    });
    CHECK(kept == kept_wide);
    check("dropout_backward", [&]<class T>(T, T* out, const T* a, const T*) {
      masked_loops<T>(level_).dropout_backward(out, a, kept.data(), 1.25, n_);
    });
  }

 private:
  Level level_;
  std::int64_t n_;
  std::vector<BFloat16> left_, right_;
  std::vector<float> wide_left_, wide_right_;
};

// One plane of few values, so that there are ties, and NaN among them; windows that lie apart.
void check_pooling(Level level) {
  for (const std::int64_t kernel : {2, 3}) {
    for (const std::int64_t width : {2, 5, 16, 24, 33, 64, 66}) {
      Pool2dGeometry o;
      o.planes = 1;
      o.in_height = 2 * kernel + 1, o.in_width = std::max(width, kernel);
      o.kernel = o.stride = {kernel, kernel};
      o.out_height = o.in_height / kernel, o.out_width = o.in_width / kernel;
      const auto in = static_cast<std::size_t>(o.in_height * o.in_width);
      const auto out = static_cast<std::size_t>(o.out_height * o.out_width);
      std::vector<BFloat16> x(in), y(out), dx(in);
      std::vector<float> wide(in), largest(out), spread(in);
      for (std::size_t i = 0; i < in; ++i) {
        const auto value = static_cast<int>(i * 2654435761u >> 8) % 7 - 3;
        wide[i] = value == 3 ? NAN : value == 2 ? -0.0f : static_cast<float>(value);
        x[i] = BFloat16(wide[i]);
      }
      std::vector<std::uint8_t> place(out), place_wide(out);
      masked_loops<BFloat16>(level).max_pool(o, y.data(), place.data(), x.data());
      masked_loops<float>(level).max_pool(o, largest.data(), place_wide.data(), wide.data());
      CHECK(place == place_wide);
      CHECK(InBf16::differences(y, largest) == 0);
      masked_loops<BFloat16>(level).max_pool_backward(o, dx.data(), y.data(), place.data());
      masked_loops<float>(level).max_pool_backward(o, spread.data(), largest.data(), place.data());
      CHECK(InBf16::differences(dx, spread) == 0);
    }
  }
}

}  // namespace

TEST_CASE("bf16 is computed as f32 and rounded, at every level") {
  for (const Level level : {Level::baseline, Level::avx2, Level::avx512}) {
    if (level > best_level()) continue;
    for (const std::int64_t n : {1, 37, 64, 100, 65536}) InBf16(level, n).check_all();
    check_pooling(level);
  }
}

TEST_CASE("two-byte types widen and narrow alike at every level") {
  for (const Level level : {Level::baseline, Level::avx2, Level::avx512}) {
    if (level > best_level()) continue;
    check_width<Half>(level);
    check_width<BFloat16>(level);
    check_narrow<Half>(level);
    check_narrow<BFloat16>(level);
  }
}

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

TEST_CASE("small products and their softmax agree with their definitions") {
  for (const Level level : {Level::baseline, Level::avx2, Level::avx512}) {
    if (level > best_level()) continue;
    check_products<float>(level);
    check_products<double>(level);
    check_softmax(level);
    check_exponentials(level);
    check_shares_again(level);
    check_changed_scores<float>(level);
    check_changed_scores<double>(level);
  }
}
