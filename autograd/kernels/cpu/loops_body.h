// SPDX-License-Identifier: Apache-2.0
// The loops of loops.h, in the namespace PEAL_LEVEL. This file is compiled with several instruction
// sets, so nothing in it may have a linker symbol that another file shares: functors are forced
// inline, no function of the standard library is called, and everything else is in a namespace of
// the level's own (a test looks at the symbols).
#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/loops_math.h>
#include <peal/autograd/kernels/cpu/loops_norm.h>
#include <peal/autograd/kernels/cpu/loops_pool.h>
#include <peal/autograd/kernels/cpu/loops_product.h>
#include <peal/autograd/kernels/cpu/loops_recurrent.h>
#include <peal/autograd/kernels/cpu/loops_softmax.h>
#include <peal/autograd/kernels/cpu/loops_vector.h>
#include <peal/autograd/kernels/cpu/loops_width.h>
#include <peal/autograd/kernels/functors.h>
#include <peal/autograd/kernels/rules.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace peal::cpu::PEAL_LEVEL {
namespace {

template <class T, class F>
void binary_loop(F f, Repeat repeat, T* out, const T* a, const T* b, std::int64_t n) {
  switch (repeat) {
    case Repeat::none:
#pragma omp simd
      for (std::int64_t i = 0; i < n; ++i) {
        out[i] = f(a[i], b[i]);
      }
      break;
    case Repeat::left: {
      const T left = *a;
#pragma omp simd
      for (std::int64_t i = 0; i < n; ++i) out[i] = f(left, b[i]);
      break;
    }
    case Repeat::right: {
      const T right = *b;
#pragma omp simd
      for (std::int64_t i = 0; i < n; ++i) out[i] = f(a[i], right);
      break;
    }
  }
}

template <class T>
void binary(Binary op, Repeat repeat, T* out, const T* a, const T* b, std::int64_t n) {
  switch (op) {
    case Binary::add:
      return binary_loop(functor::Add{}, repeat, out, a, b, n);
    case Binary::sub:
      return binary_loop(functor::Sub{}, repeat, out, a, b, n);
    case Binary::mul:
      return binary_loop(functor::Mul{}, repeat, out, a, b, n);
    case Binary::div:
      if constexpr (std::is_floating_point_v<T>) {
        return binary_loop(functor::Div{}, repeat, out, a, b, n);
      }
      return;
    case Binary::relu_backward:
      return binary_loop(functor::ReluBackward{}, repeat, out, a, b, n);
  }
}

template <class T, class F>
void unary_loop(F f, T* out, const T* x, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) out[i] = f(x[i]);
}

template <class T>
void unary(Unary op, T* out, const T* x, double s, std::int64_t n) {
  const T scalar = static_cast<T>(s);
  switch (op) {
    case Unary::add_scalar:
      return unary_loop(functor::AddScalar<T>{scalar}, out, x, n);
    case Unary::mul_scalar:
      return unary_loop(functor::MulScalar<T>{scalar}, out, x, n);
    case Unary::div_scalar:
      if constexpr (std::is_floating_point_v<T>) {
        return unary_loop(functor::DivScalar<T>{scalar}, out, x, n);
      }
      return;
    case Unary::relu:
      return unary_loop(functor::Relu<T>{scalar}, out, x, n);
  }
}

template <class T>
void axpy(T* x, const T* y, double alpha, std::int64_t n) {
  const T scale = static_cast<T>(alpha);
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    x[i] = static_cast<T>(x[i] + scale * y[i]);
  }
}

template <class T>
void fill(T* out, double value, std::int64_t n) {
  const T element = static_cast<T>(value);
  for (std::int64_t i = 0; i < n; ++i) out[i] = element;
}

// Blocks of 1024 are summed in 64 lanes of T, blocks in double: fast, and as exact as pairwise.
template <class T>
double sum(const T* x, std::int64_t n) {
  constexpr int lanes = 64;
  double total = 0;
  std::int64_t i = 0;
  while (n - i >= lanes) {
    T lane[lanes] = {};
    const std::int64_t left = (n - i) / lanes, rounds = left < 16 ? left : 16;
    for (std::int64_t round = 0; round < rounds; ++round, i += lanes) {
      for (int l = 0; l < lanes; ++l) lane[l] += x[i + l];
    }
    for (int half = lanes / 2; half > 0; half /= 2) {
      for (int l = 0; l < half; ++l) lane[l] += lane[l + half];
    }
    total += static_cast<double>(lane[0]);
  }
  for (; i < n; ++i) total += static_cast<double>(x[i]);
  return total;
}

template <class T>
void add_to_doubles(double* total, const T* x, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) total[i] += static_cast<double>(x[i]);
}

template <class T>
T max(const T* x, std::int64_t n) {
  T largest = x[0];
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 1; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

template <class T>
void sgd(T* __restrict p, const T* __restrict g, T* __restrict buffer, const SgdStep& options,
         std::int64_t n) {
  const functor::Sgd<T> f(options);
  if (buffer == nullptr) {
    for (std::int64_t i = 0; i < n; ++i) p[i] = f.plain(p[i], g[i]);
  } else {
    for (std::int64_t i = 0; i < n; ++i) p[i] = f.with_momentum(p[i], g[i], buffer[i]);
  }
}

template <class T>
void adam(T* __restrict p, const T* __restrict g, T* __restrict m, T* __restrict v,
          const AdamStep& options, std::int64_t n) {
  const functor::Adam<T> f(options);
  for (std::int64_t i = 0; i < n; ++i) p[i] = f(p[i], g[i], m[i], v[i]);
}

template <class T>
void rule_step(T* __restrict p, const T* __restrict g, T* __restrict a, T* __restrict b,
               T* __restrict c, const RuleStep& options, std::int64_t n) {
  const functor::Rules<T> f(options);
  functor::with_rule(options.rule, [&]<Rule which>() {
    for (std::int64_t i = 0; i < n; ++i) {
      T none{};
      if constexpr (states_of(which) == 1) {
        p[i] = f.template step<which>(p[i], g[i], a[i], none, none);
      } else if constexpr (states_of(which) == 2) {
        p[i] = f.template step<which>(p[i], g[i], a[i], b[i], none);
      } else {
        p[i] = f.template step<which>(p[i], g[i], a[i], b[i], c[i]);
      }
    }
  });
}

// Philox (rng.h has it for one block), a block in each lane of 64 bits: only the lower halves
// count, as they do for the multiplication.
using Wide = Vector<std::uint64_t>;
PEAL_ELEMENT Wide multiply_low_halves(const Wide& a, std::uint32_t b) {
#if defined(__AVX512F__)
  return (Wide)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(b));
#elif defined(__AVX2__)
  return (Wide)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(b));
#elif defined(__SSE2__)
  return (Wide)_mm_mul_epu32((__m128i)a, _mm_set1_epi64x(b));
#else
  return (a & 0xffffffffu) * std::uint64_t{b};
#endif
}
// The words of as many blocks as a vector has lanes, from block `first` on, in order.
template <std::size_t... I>
PEAL_ELEMENT void philox_blocks(std::uint64_t seed, std::uint64_t first, std::uint32_t* word,
                                std::index_sequence<I...> all) {
  const Wide counter = Wide{I...} + first;
  Wide c0 = counter, c1 = counter >> 32, c2 = {}, c3 = {};
  std::uint32_t k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const Wide p0 = multiply_low_halves(c0, 0xD2511F53u), p1 = multiply_low_halves(c2, 0xCD9E8D57u);
    c0 = (p1 >> 32) ^ c1 ^ std::uint64_t{k0};
    c2 = (p0 >> 32) ^ c3 ^ std::uint64_t{k1};
    c1 = p1;
    c3 = p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const Wide front = (c0 & 0xffffffffu) | (c1 << 32), back = (c2 & 0xffffffffu) | (c3 << 32);
  store(word, zip_low(front, back, all));
  store(word + 2 * sizeof...(I), zip_high(front, back, all));
}

template <class T>
void dropout(T* __restrict y, std::uint8_t* __restrict mask, const T* __restrict x,
             RandomRange words, std::int64_t first, std::uint32_t threshold, double scale,
             std::int64_t n) {
  constexpr std::int64_t chunk = 4 * lanes<std::uint64_t>;
  const functor::Dropout<T> f{threshold, static_cast<T>(scale)};
  std::uint64_t block = (words.offset + static_cast<std::uint64_t>(first)) / 4;
  for (std::int64_t i = 0; i < n; i += chunk, block += lanes<std::uint64_t>) {
    std::uint32_t word[chunk];
    philox_blocks(words.seed, block, word, Lanes<std::uint64_t>{});
    const std::int64_t left = n - i < chunk ? n - i : chunk;
    if (left == chunk) {  // a fixed count, so that it becomes vectors
      for (int l = 0; l < chunk; ++l) mask[i + l] = f.keeps(word[l]) ? 1 : 0;
      for (int l = 0; l < chunk; ++l) y[i + l] = f(x[i + l], f.keeps(word[l]));
    } else {
      for (std::int64_t l = 0; l < left; ++l) {
        mask[i + l] = f.keeps(word[l]) ? 1 : 0;
        y[i + l] = f(x[i + l], mask[i + l] != 0);
      }
    }
  }
}

template <class T>
void dropout_backward(T* dx, const T* dy, const std::uint8_t* mask, double scale, std::int64_t n) {
  const functor::Dropout<T> f{0, static_cast<T>(scale)};
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) dx[i] = f(dy[i], mask[i] != 0);
}

template <class T>
constexpr Loops<T> loops_here = {
    .binary = binary<T>, .unary = unary<T>, .axpy = axpy<T>, .fill = fill<T>};
template <class T>
constexpr RealLoops<T> real_loops_here = {.sum = sum<T>,
                                          .add_to_doubles = add_to_doubles<T>,
                                          .max = max<T>,
                                          .sgd = sgd<T>,
                                          .adam = adam<T>,
                                          .rule_step = rule_step<T>,
                                          .dropout = dropout<T>,
                                          .dropout_backward = dropout_backward<T>,
                                          .max_pool = max_pool<T>,
                                          .max_pool_backward = max_pool_backward<T>};

}  // namespace

template <class T>
const Loops<T>& all_loops() {
  return loops_here<T>;
}
template <class T>
const RealLoops<T>& all_real_loops() {
  return real_loops_here<T>;
}

template <class T>
const NormLoops<T>& all_norm_loops() {
  return norm_loops_here<T>;
}

template <class T>
const ProductLoops<T>& all_product_loops() {
  return product_loops_here<T>;
}

template <class T>
const WidthLoops<T>& all_width_loops() {
  return width_loops_here<T>;
}

template const WidthLoops<Half>& all_width_loops<Half>();
template const WidthLoops<BFloat16>& all_width_loops<BFloat16>();
template const ProductLoops<float>& all_product_loops<float>();
template const ProductLoops<double>& all_product_loops<double>();
template const NormLoops<float>& all_norm_loops<float>();
template const NormLoops<double>& all_norm_loops<double>();
template const Loops<float>& all_loops<float>();
template const Loops<double>& all_loops<double>();
template const RealLoops<float>& all_real_loops<float>();
template const RealLoops<double>& all_real_loops<double>();
#ifdef PEAL_ALL_DTYPES
template const Loops<std::int32_t>& all_loops<std::int32_t>();
template const Loops<std::int64_t>& all_loops<std::int64_t>();
template const Loops<std::uint8_t>& all_loops<std::uint8_t>();
template const Loops<std::int8_t>& all_loops<std::int8_t>();
#endif

}  // namespace peal::cpu::PEAL_LEVEL
