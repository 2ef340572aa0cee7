// SPDX-License-Identifier: Apache-2.0
// The layout arithmetic for cuBLAS: what it says, carried out column by column, is the product of
// the row-major matrices.
#include <peal/autograd/kernels/cuda/column_major.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <utility>
#include <vector>

using namespace peal::cuda;

namespace {

std::vector<double> numbers(std::int64_t n) {
  std::vector<double> values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<double>((i * 37 + 11) % 17) - 8;
  }
  return values;
}

// As the definition has it.
void by_rows(const RowProduct& o, double* out, const double* a, const double* b) {
  for (std::int64_t batch = 0; batch < o.batch; ++batch) {
    for (std::int64_t i = 0; i < o.m; ++i) {
      for (std::int64_t j = 0; j < o.n; ++j) {
        double sum = 0;
        for (std::int64_t p = 0; p < o.k; ++p) {
          sum += a[batch * o.step_a + (o.transpose_a ? p * o.row_a + i : i * o.row_a + p)] *
                 b[batch * o.step_b + (o.transpose_b ? j * o.row_b + p : p * o.row_b + j)];
        }
        out[batch * o.step_out + i * o.row_out + j] = sum;
      }
    }
  }
}

// As cuBLAS has it: out = op(first) op(second), all column-major.
void by_columns(const ColumnProduct& o, double* out, const double* first, const double* second) {
  const auto at = [](const ColumnMatrix& x, std::int64_t batch, std::int64_t i, std::int64_t j) {
    if (x.transposed) std::swap(i, j);
    REQUIRE((i < x.rows && j < x.columns));
    return batch * x.step + j * x.leading + i;
  };
  const std::int64_t k = o.first.transposed ? o.first.rows : o.first.columns;
  REQUIRE(k == (o.second.transposed ? o.second.columns : o.second.rows));
  for (const ColumnMatrix* x : {&o.first, &o.second, &o.out}) REQUIRE(x->leading >= x->rows);
  for (std::int64_t batch = 0; batch < o.batch; ++batch) {
    for (std::int64_t i = 0; i < o.out.rows; ++i) {
      for (std::int64_t j = 0; j < o.out.columns; ++j) {
        double sum = 0;
        for (std::int64_t p = 0; p < k; ++p) {
          sum += first[at(o.first, batch, i, p)] * second[at(o.second, batch, p, j)];
        }
        out[at(o.out, batch, i, j)] = sum;
      }
    }
  }
}

}  // namespace

TEST_CASE("a product of row-major matrices is one of column-major ones, operands exchanged") {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      for (const std::int64_t m : {1, 2, 5}) {
        for (const std::int64_t n : {1, 3, 4}) {
          for (const std::int64_t k : {1, 2, 7}) {
            const RowProduct o = dense_product(m, n, k, ta, tb, 3);
            const auto a = numbers(3 * m * k), b = numbers(3 * k * n);
            std::vector<double> expected(static_cast<std::size_t>(3 * m * n)), got = expected;
            by_rows(o, expected.data(), a.data(), b.data());
            by_columns(column_major(o), got.data(), b.data(), a.data());
            CHECK(got == expected);
          }
        }
      }
    }
  }
}

// q k^T, then with v: as attention reads its heads where they lie.
TEST_CASE("all heads of all batches are covered once, by launches of the smaller count") {
  for (const auto& [batch, heads] : {std::pair{1, 1}, {1, 5}, {4, 1}, {2, 3}, {5, 2}}) {
    const std::int64_t queries = 3, keys = 4, width = 2, row = heads * width;
    const HeadMatrices q{row, queries * row, width}, k{row, keys * row, width};
    const HeadMatrices scores{keys, heads * queries * keys, queries * keys};
    const auto a = numbers(batch * queries * row), b = numbers(batch * keys * row);
    std::vector<double> got(static_cast<std::size_t>(batch * heads * queries * keys), -1000);
    std::vector<double> expected = got;
    const HeadLaunches plan = head_launches(batch, heads);
    CHECK(plan.launches == std::min(batch, heads));
    CHECK(plan.launches * plan.batch == batch * heads);
    const RowProduct o{queries,    keys,         width,        false,
                       true,       q.row,        k.row,        scores.row,
                       plan.batch, plan.step(q), plan.step(k), plan.step(scores)};
    for (std::int64_t i = 0; i < plan.launches; ++i) {
      by_columns(column_major(o), got.data() + plan.offset(scores, i), b.data() + plan.offset(k, i),
                 a.data() + plan.offset(q, i));
    }
    for (std::int64_t x = 0; x < batch; ++x) {
      for (std::int64_t h = 0; h < heads; ++h) {
        RowProduct one = o;
        one.batch = 1;
        by_rows(one, expected.data() + (x * heads + h) * queries * keys,
                a.data() + x * queries * row + h * width, b.data() + x * keys * row + h * width);
      }
    }
    CHECK(got == expected);
  }
}
