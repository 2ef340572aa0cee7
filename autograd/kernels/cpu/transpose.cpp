// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cpu/transpose.h>

#include <algorithm>
#include <cstring>

namespace peal::cpu {
namespace {

constexpr std::int64_t block = 8;
using Row = std::uint16_t __attribute__((vector_size(2 * block)));

Row load(const std::uint16_t* from) {
  Row row;
  std::memcpy(&row, from, sizeof(row));
  return row;
}

template <int... places>
Row mixed(Row a, Row b) {
  return __builtin_shufflevector(a, b, places...);
}
Row low1(Row a, Row b) { return mixed<0, 8, 1, 9, 2, 10, 3, 11>(a, b); }
Row high1(Row a, Row b) { return mixed<4, 12, 5, 13, 6, 14, 7, 15>(a, b); }
Row low2(Row a, Row b) { return mixed<0, 1, 8, 9, 2, 3, 10, 11>(a, b); }
Row high2(Row a, Row b) { return mixed<4, 5, 12, 13, 6, 7, 14, 15>(a, b); }
Row low4(Row a, Row b) { return mixed<0, 1, 2, 3, 8, 9, 10, 11>(a, b); }
Row high4(Row a, Row b) { return mixed<4, 5, 6, 7, 12, 13, 14, 15>(a, b); }

// Rows come together by two, by four and by eight.
void transpose_block(std::uint16_t* to, std::int64_t row_to, const std::uint16_t* from,
                     std::int64_t row_from) {
  Row x[block], y[block];
  for (int i = 0; i < block; ++i) x[i] = load(from + i * row_from);
  for (int i = 0; i < block; i += 2) {
    y[i] = low1(x[i], x[i + 1]);
    y[i + 1] = high1(x[i], x[i + 1]);
  }
  for (int i = 0; i < block; i += 4) {
    for (int half = 0; half < 2; ++half) {
      x[i + 2 * half] = low2(y[i + half], y[i + half + 2]);
      x[i + 2 * half + 1] = high2(y[i + half], y[i + half + 2]);
    }
  }
  for (int i = 0; i < block / 2; ++i) {
    const Row even = low4(x[i], x[i + 4]), odd = high4(x[i], x[i + 4]);
    std::memcpy(to + 2 * i * row_to, &even, sizeof(even));
    std::memcpy(to + (2 * i + 1) * row_to, &odd, sizeof(odd));
  }
}

}  // namespace

void transpose(std::uint16_t* to, std::int64_t row_to, const std::uint16_t* from,
               std::int64_t row_from, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t line =
      32;  // elements: a row of the result is written by whole cache lines
  const std::int64_t whole_rows = rows / block * block, whole_columns = columns / block * block;
  for (std::int64_t first = 0; first < whole_rows; first += line) {
    const std::int64_t end = std::min(first + line, whole_rows);
    for (std::int64_t j = 0; j < whole_columns; j += block) {
      for (std::int64_t i = first; i < end; i += block) {
        transpose_block(to + j * row_to + i, row_to, from + i * row_from + j, row_from);
      }
    }
  }
  for (std::int64_t j = 0; j < columns; ++j) {
    for (std::int64_t i = j < whole_columns ? whole_rows : 0; i < rows; ++i) {
      to[j * row_to + i] = from[i * row_from + j];
    }
  }
}

}  // namespace peal::cpu
