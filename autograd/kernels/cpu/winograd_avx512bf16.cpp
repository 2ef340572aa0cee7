// SPDX-License-Identifier: Apache-2.0
// Compiled with x86-64-v4 and AVX512_BF16.
#include <peal/autograd/kernels/cpu/winograd_pairs.h>

#include <immintrin.h>

namespace peal::cpu::avx512bf16 {
namespace {

constexpr int lanes = 16;

__mmask16 first_lanes(std::int64_t n) {
  return static_cast<__mmask16>(n >= lanes ? 0xffff : (1u << n) - 1);
}

// Of a row of n elements, from `begin` on as so many pairs, which are there: at most 16 pairs.
__mmask32 inside(std::int64_t begin, std::int64_t count, std::int64_t n) {
  const auto below = [](std::int64_t i) { return i <= 0 ? 0u : i >= 32 ? ~0u : (1u << i) - 1; };
  return below(2 * count) & below(n - begin) & ~below(-begin);
}

// For each of `height` rows of tiles the pairs of a tile's columns (0, 1) and (2, 3), tile by tile;
// 0 outside of the plane, and behind the last tile.
template <int height, int width>
struct Strips {
  alignas(64) Bf16Pair at[height][width / 2][pair_columns + lanes];

  Strips(const std::uint16_t* x, std::int64_t c, const TiledPlanes& o, const TileRows& rows) {
    for (std::int64_t t = 0; t < o.across; t += lanes) {
      const __mmask16 there = first_lanes(o.across - t);
      std::int64_t begin[width / 2];
      __mmask32 seen[width / 2];
      for (int s = 0; s < width / 2; ++s) {
        begin[s] = 2 * (t + s) - o.padding;
        seen[s] = inside(begin[s], o.across - t, o.width);
      }
      std::int64_t image = rows.first / o.down, down = rows.first % o.down, lane = t;
      for (std::int64_t r = 0; r < rows.count; ++r, lane += o.across) {
        const std::uint16_t* plane = x + (image * o.channels + c) * o.height * o.width;
        for (int k = 0; k < height; ++k) {
          const std::int64_t row = 2 * down - o.padding + k;
          const bool exists = row >= 0 && row < o.height;
          for (int s = 0; s < width / 2; ++s) {
            _mm512_mask_storeu_epi32(
                at[k][s] + lane, there,
                _mm512_maskz_loadu_epi16(exists ? seen[s] : 0, plane + row * o.width + begin[s]));
          }
        }
        if (++down == o.down) down = 0, ++image;
      }
    }
    for (std::int64_t lane = rows.count * o.across; lane < pair_columns; lane += lanes) {
      for (int k = 0; k < height; ++k) {
        for (int s = 0; s < width / 2; ++s) {
          _mm512_storeu_si512(at[k][s] + lane, _mm512_setzero_si512());
        }
      }
    }
  }
};

__m512 first_of(__m512i pairs) { return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)); }
__m512 second_of(__m512i pairs) {
  return _mm512_castsi512_ps(
      _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}

struct Four {
  __m512 at[4];
};

Four of_input(__m512 a, __m512 b, __m512 c, __m512 d) { return {{a - c, b + c, c - b, b - d}}; }
Four of_gradient(__m512 a, __m512 b) { return {{a, a + b, a - b, -b}}; }

// f(position, vector) over the transforms of 16 tiles.
template <class F>
__attribute__((always_inline)) inline void input_tiles(const Strips<4, 4>& strips, std::int64_t at,
                                                       F&& f) {
  Four rows[4];
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
    const __m512i left = _mm512_loadu_si512(strips.at[k][0] + at);
    const __m512i right = _mm512_loadu_si512(strips.at[k][1] + at);
    rows[k] = of_input(first_of(left), second_of(left), first_of(right), second_of(right));
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const Four column = of_input(rows[0].at[j], rows[1].at[j], rows[2].at[j], rows[3].at[j]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) f(4 * i + j, column.at[i]);
  }
}

// Words of two vectors, rounded, side by side.
__m512i joined(__m512 first, __m512 second) {
  alignas(64) static constexpr std::uint16_t order[32] = {
      0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const auto both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
  return _mm512_permutexvar_epi16(_mm512_load_si512(order), both);
}

void store_rounded(std::uint16_t* to, __m512 value) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(value)));
}

}  // namespace

void tiles_to_pairs(Bf16Pair* to, std::int64_t step, const std::uint16_t* x, std::int64_t c,
                    const TiledPlanes& o, const TileRows& rows) {
  const Strips<4, 4> first(x, c, o, rows), second(x, c + 1, o, rows);
  for (std::int64_t at = 0; at < rows.count * o.across; at += lanes) {
    __m512 kept[positions];
    input_tiles(first, at, [&](int position, __m512 value) { kept[position] = value; });
    input_tiles(second, at, [&](int position, __m512 value) {
      _mm512_storeu_si512(to + position * step + at, joined(kept[position], value));
    });
  }
}

void tiles_to_row(std::uint16_t* to, std::int64_t step, const std::uint16_t* x, std::int64_t c,
                  const TiledPlanes& o, const TileRows& rows) {
  const Strips<4, 4> strips(x, c, o, rows);
  for (std::int64_t at = 0; at < pair_columns; at += lanes) {
    input_tiles(strips, at, [&](int position, __m512 value) {
      store_rounded(to + position * step + at, value);
    });
  }
}

void gradients_to_row(std::uint16_t* to, std::int64_t step, const std::uint16_t* dy, std::int64_t c,
                      const TiledPlanes& o, const TileRows& rows) {
  const Strips<2, 2> strips(dy, c, o, rows);
  for (std::int64_t at = 0; at < pair_columns; at += lanes) {
    const __m512i above = _mm512_loadu_si512(strips.at[0][0] + at);
    const __m512i below = _mm512_loadu_si512(strips.at[1][0] + at);
    const Four top = of_gradient(first_of(above), second_of(above));
    const Four bottom = of_gradient(first_of(below), second_of(below));
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const Four column = of_gradient(top.at[j], bottom.at[j]);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) store_rounded(to + (4 * i + j) * step + at, column.at[i]);
    }
  }
}

void sums_to_results(std::uint16_t* y, const float* sums, std::int64_t step, float bias,
                     std::int64_t c, const TiledPlanes& o, const TileRows& rows) {
  alignas(64) Bf16Pair strips[2][pair_columns + lanes];
  for (std::int64_t at = 0; at < rows.count * o.across; at += lanes) {
    __m512 halves[2][4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const auto sum = [&](int i) { return _mm512_loadu_ps(sums + (4 * i + j) * step + at); };
      halves[0][j] = sum(0) + sum(1) + sum(2);
      halves[1][j] = sum(1) - sum(2) - sum(3);
    }
#pragma GCC unroll 2
    for (int k = 0; k < 2; ++k) {
      const __m512* h = halves[k];
      const __m512 first = h[0] + h[1] + h[2] + bias, second = h[1] - h[2] - h[3] + bias;
      _mm512_storeu_si512(strips[k] + at, joined(first, second));
    }
  }
  std::int64_t lane = 0;
  for (std::int64_t r = rows.first; r < rows.first + rows.count; ++r, lane += o.across) {
    std::uint16_t* row = y + ((r / o.down * o.channels + c) * o.height + r % o.down * 2) * o.width;
    for (std::int64_t t = 0; t < o.across; t += lanes) {
      const __mmask16 there = first_lanes(o.across - t);
      for (int k = 0; k < 2; ++k) {
        _mm512_mask_storeu_epi32(row + k * o.width + 2 * t, there,
                                 _mm512_loadu_si512(strips[k] + lane + t));
      }
    }
  }
}

void kernels_to_row(std::uint16_t* to, std::int64_t step, const float* w, std::int64_t w_step,
                    std::int64_t n) {
  for (std::int64_t at = 0; at < n; at += lanes) {
    const __mmask16 there = first_lanes(n - at);
    const auto turn = [](__m512 a, __m512 b, __m512 c) {
      const __m512 ends = (a + c) * 0.5f, middle = b * 0.5f;
      return Four{{a, ends + middle, ends - middle, c}};
    };
    Four rows[3];
#pragma GCC unroll 3
    for (int k = 0; k < 3; ++k) {
      const auto cell = [&](int j) {
        return _mm512_maskz_loadu_ps(there, w + (3 * k + j) * w_step + at);
      };
      rows[k] = turn(cell(0), cell(1), cell(2));
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const Four column = turn(rows[0].at[j], rows[1].at[j], rows[2].at[j]);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        _mm256_mask_storeu_epi16(to + (4 * i + j) * step + at, there,
                                 reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(column.at[i])));
      }
    }
  }
}

void sums_to_kernels(float* dw, const float* from, std::int64_t step, std::int64_t n) {
  for (std::int64_t at = 0; at < n; at += lanes) {
    const __mmask16 there = first_lanes(n - at);
    struct Three {
      __m512 at[3];
    };
    const auto turn = [](__m512 a, __m512 b, __m512 c, __m512 d) {
      const __m512 both = (b + c) * 0.5f;
      return Three{{a + both, (b - c) * 0.5f, both + d}};
    };
    Three rows[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const auto sum = [&](int j) {
        return _mm512_maskz_loadu_ps(there, from + (4 * i + j) * step + at);
      };
      rows[i] = turn(sum(0), sum(1), sum(2), sum(3));
    }
#pragma GCC unroll 3
    for (int j = 0; j < 3; ++j) {
      const Three column = turn(rows[0].at[j], rows[1].at[j], rows[2].at[j], rows[3].at[j]);
#pragma GCC unroll 3
      for (int k = 0; k < 3; ++k) {
        _mm512_mask_storeu_ps(dw + (3 * k + j) * n + at, there, column.at[k]);
      }
    }
  }
}

}  // namespace peal::cpu::avx512bf16
