// SPDX-License-Identifier: Apache-2.0
// Compiled with x86-64-v4 and AVX512_BF16.
#include <peal/autograd/kernels/cpu/pairs.h>

#include <immintrin.h>

namespace peal::cpu::avx512bf16 {
namespace {

constexpr int lanes = 16;

__mmask16 first_lanes(std::int64_t n) {
  return n >= lanes ? __mmask16{0xffff} : static_cast<__mmask16>((1u << n) - 1);
}

// Of the last vector, `left` columns are there.
template <int rows, int vectors>
void tile(const PairResult& to, const Bf16Pair* a, const Bf16Pair* b, const float* onto,
          const PairProduct& o, std::int64_t left) {
  __m512 sums[rows][vectors];
  const __mmask16 last = first_lanes(left);
  const auto mask = [&](int j) { return j < vectors - 1 ? __mmask16{0xffff} : last; };
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < vectors; ++j) {
      sums[i][j] = onto != nullptr
                       ? _mm512_maskz_loadu_ps(mask(j), onto + i * o.row_onto + j * lanes)
                       : _mm512_setzero_ps();
    }
  }
  for (std::int64_t p = 0; p < o.k; ++p, a += o.step_a, b += pair_columns) {
    __m512i right[vectors];
#pragma GCC unroll 8
    for (int j = 0; j < vectors; ++j) right[j] = _mm512_loadu_si512(b + j * lanes);
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      const auto both = reinterpret_cast<__m512bh>(_mm512_set1_epi32(a[i * o.row_a]));
#pragma GCC unroll 8
      for (int j = 0; j < vectors; ++j) {
        sums[i][j] = _mm512_dpbf16_ps(sums[i][j], both, reinterpret_cast<__m512bh>(right[j]));
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < vectors; ++j) {
      const std::int64_t at = i * o.row_out + j * lanes;
      if (to.wide != nullptr) {
        _mm512_mask_storeu_ps(to.wide + at, mask(j), sums[i][j]);
      } else {
        _mm256_mask_storeu_epi16(to.narrow + at, mask(j),
                                 reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(sums[i][j])));
      }
    }
  }
}

template <int rows>
void row_of_tiles(const PairResult& to, const Bf16Pair* a, const Bf16Pair* b, const float* onto,
                  const PairProduct& o) {
  const std::int64_t before = (o.n - 1) / lanes, left = o.n - before * lanes;
  switch (before) {
    case 0:
      return tile<rows, 1>(to, a, b, onto, o, left);
    case 1:
      return tile<rows, 2>(to, a, b, onto, o, left);
    case 2:
      return tile<rows, 3>(to, a, b, onto, o, left);
    default:
      return tile<rows, 4>(to, a, b, onto, o, left);
  }
}

// Rows p and p + 1 of n elements some pairs before they are read: the CPU does not foresee parts of
// rows.
void ask_for_rows(const std::uint16_t* from, std::int64_t row, std::int64_t k, std::int64_t p,
                  std::int64_t n) {
  constexpr std::int64_t soon = 16, line = 32;
  for (std::int64_t i = p + soon; i < p + soon + 2 && i < k; ++i) {
    for (std::int64_t j = 0; j < n; j += line) {
      _mm_prefetch(reinterpret_cast<const char*>(from + i * row + j), _MM_HINT_T0);
    }
  }
}

// Two rows' elements side by side.
__m512i joined(__m256i first, __m256i second) {
  return _mm512_or_si512(_mm512_cvtepu16_epi32(first),
                         _mm512_slli_epi32(_mm512_cvtepu16_epi32(second), 16));
}

}  // namespace

void multiply_pairs(const PairResult& to, const Bf16Pair* a, const Bf16Pair* b, const float* onto,
                    const PairProduct& o) {
  std::int64_t i = 0;
  const auto run = [&]<int rows>() {
    row_of_tiles<rows>({to.wide != nullptr ? to.wide + i * o.row_out : nullptr,
                        to.narrow != nullptr ? to.narrow + i * o.row_out : nullptr},
                       a + i * o.row_a, b, onto != nullptr ? onto + i * o.row_onto : nullptr, o);
    i += rows;
  };
  while (o.m - i >= pair_rows) run.template operator()<pair_rows>();
  if (o.m - i >= 4) run.template operator()<4>();
  if (o.m - i >= 2) run.template operator()<2>();
  if (o.m - i >= 1) run.template operator()<1>();
}

void join_rows(Bf16Pair* to, const std::uint16_t* from, std::int64_t row, std::int64_t k,
               std::int64_t n) {
  for (std::int64_t p = 0; p < k; p += 2, to += pair_columns) {
    const std::uint16_t *first = from + p * row, *second = first + row;
    ask_for_rows(from, row, k, p, n);
    for (std::int64_t j = 0; j < n; j += lanes) {
      const __mmask16 there = first_lanes(n - j);
      const __m256i below = p + 1 < k ? _mm256_maskz_loadu_epi16(there, second + j) : __m256i{};
      _mm512_storeu_si512(to + j, joined(_mm256_maskz_loadu_epi16(there, first + j), below));
    }
  }
}

void split_rows(Bf16Pair* to, const std::uint16_t* from, std::int64_t row, std::int64_t k,
                std::int64_t n) {
  // Some rows at a time, as a tile takes less than a cache line of each.
  constexpr std::int64_t together = 32;
  const std::int64_t size = (k + 1) / 2 * pair_step;
  for (std::int64_t begin = 0; begin < k; begin += together) {
    const std::int64_t end = begin + together < k ? begin + together : k;
    for (std::int64_t i = 0; i < n; i += pair_rows) {
      const auto there = static_cast<__mmask8>((1u << (n - i < pair_rows ? n - i : pair_rows)) - 1);
      Bf16Pair* tile_at = to + i / pair_rows * size + begin / 2 * pair_step;
      for (std::int64_t p = begin; p < end; p += 2, tile_at += pair_step) {
        const std::uint16_t* at = from + p * row + i;
        const __m128i first = _mm_maskz_loadu_epi16(there, at);
        const __m128i second = p + 1 < k ? _mm_maskz_loadu_epi16(there, at + row) : __m128i{};
        _mm256_storeu_si256(
            reinterpret_cast<__m256i*>(tile_at),
            _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_unpacklo_epi16(first, second)),
                                    _mm_unpackhi_epi16(first, second), 1));
      }
    }
  }
}

}  // namespace peal::cpu::avx512bf16
