// SPDX-License-Identifier: Apache-2.0
// Dropout and max pooling, which keep a byte beside each result. Part of loops_body.h, and under
// its rule about symbols.
#pragma once

#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/loops_pool.h>
#include <peal/autograd/kernels/cpu/loops_vector.h>
#include <peal/autograd/kernels/cpu/loops_width.h>
#include <peal/autograd/kernels/functors.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace peal::cpu::PEAL_LEVEL {
namespace {

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
  using Real = functor::computed<T>;
  const functor::Dropout<Real> f{threshold, static_cast<Real>(scale)};
  std::uint64_t block = (words.offset + static_cast<std::uint64_t>(first)) / 4;
  for (std::int64_t i = 0; i < n; i += chunk, block += lanes<std::uint64_t>) {
    std::uint32_t word[chunk];
    philox_blocks(words.seed, block, word, Lanes<std::uint64_t>{});
    const std::int64_t left = n - i < chunk ? n - i : chunk;
    if (left == chunk) {  // a fixed count, so that it becomes vectors
      for (int l = 0; l < chunk; ++l) mask[i + l] = f.keeps(word[l]) ? 1 : 0;
      in_strips(y + i, chunk, [&](std::int64_t l) { return f(Real(x[i + l]), f.keeps(word[l])); });
    } else {
      for (std::int64_t l = 0; l < left; ++l) {
        mask[i + l] = f.keeps(word[l]) ? 1 : 0;
        y[i + l] = T(f(Real(x[i + l]), mask[i + l] != 0));
      }
    }
  }
}

template <class T>
void dropout_backward(T* dx, const T* dy, const std::uint8_t* mask, double scale, std::int64_t n) {
  using Real = functor::computed<T>;
  const functor::Dropout<Real> f{0, static_cast<Real>(scale)};
  in_strips(dx, n, [=](std::int64_t i) { return f(Real(dy[i]), mask[i] != 0); });
}

template <class T>
constexpr MaskedLoops<T> masked_loops_here = {.dropout = dropout<T>,
                                              .dropout_backward = dropout_backward<T>,
                                              .max_pool = max_pool<T>,
                                              .max_pool_backward = max_pool_backward<T>};

}  // namespace
}  // namespace peal::cpu::PEAL_LEVEL
