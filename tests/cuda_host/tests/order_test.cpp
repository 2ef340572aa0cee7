// SPDX-License-Identifier: Apache-2.0
// Entries that write by index, sort and search: CUDA's kernels against the CPU's.
#include "both.h"

#include <algorithm>
#include <limits>

using namespace peal;
using namespace peal::test;

namespace {

struct Form {
  Shape whole, part;
  int dim;
};
const std::vector<Form> forms = {{{7}, {5}, 0},
                                 {{3}, {40}, 0},
                                 {{5, 4}, {3, 4}, 0},
                                 {{5, 4}, {5, 9}, 1},
                                 {{3, 6, 5}, {3, 4, 5}, 1},
                                 {{2, 70}, {2, 300}, 1},
                                 {{4, 3}, {0, 3}, 0}};

// The product of a few factors, each near 1, so that its order matters to the last bit alone.
double near_one(double x) { return 1 + x / 64; }

}  // namespace

TEST_CASE("writing, multiplying and comparing by index") {
  for (const Form& form : forms) {
    CAPTURE(concat(form.part, " onto ", form.whole));
    const std::int64_t size = form.whole[form.dim];
    const Tensor places = indices(form.part, size, 4),
                 rows = indices({form.part[form.dim]}, size, 5);
    for (const DType dtype : all_types) {
      CAPTURE(concat(dtype));
      const Tensor whole = random(dtype, form.whole, 1), part = random(dtype, form.part, 2);
      on_both(&Kernels::scatter, 0, 1, Scatter::set, whole, part, places, form.dim);
      on_both(&Kernels::index_copy, 0, 1, whole, part, rows, form.dim);
      if (dtype == DType::boolean) continue;
      on_both(&Kernels::scatter, 0, 1, Scatter::maximum, whole, part, places, form.dim);
      on_both(&Kernels::scatter, 0, 1, Scatter::minimum, whole, part, places, form.dim);
      on_both(&Kernels::scatter_add, bound_of(dtype), 1, whole, part, places, form.dim);
      on_both(&Kernels::index_add, bound_of(dtype), 1, whole, part, rows, form.dim);
      if (!is_floating(dtype)) continue;
      on_both(&Kernels::scatter, bound_of(dtype), 1, Scatter::multiply, whole,
              map(random(dtype, form.part, 3), near_one), places, form.dim);
    }
  }
}

TEST_CASE("rows are sorted, equal elements in their order, a NaN as the largest") {
  for (const std::int64_t n : {1, 2, 3, 8, 31, 257, 1024, 1025, 2500}) {
    for (const DType dtype : all_types) {
      if (n > 300 && dtype != DType::f32 && dtype != DType::u8) continue;
      CAPTURE(n);
      CAPTURE(concat(dtype));
      const Tensor x = random(dtype, {3, n}, 1);
      if (dtype == DType::f32) {
        for (std::int64_t i = 0; i < x.numel(); i += 5) {
          x.data<float>()[i] = std::numeric_limits<float>::quiet_NaN();
        }
        for (std::int64_t i = 1; i < x.numel(); i += 7) x.data<float>()[i] = i % 2 ? 0.f : -0.f;
      }
      for (const std::int64_t k : {n, std::min<std::int64_t>(n, 3), std::int64_t{0}}) {
        for (const bool descending : {false, true}) {
          on_both(&Kernels::sort, 0, 2, random(dtype, {3, k}, 2),
                  Tensor::zeros({3, k}, DType::i64, Device{}), x, descending);
        }
      }
    }
  }
}

TEST_CASE("search in sorted rows") {
  for (const DType dtype : number_types) {
    for (const std::int64_t size : {0, 1, 2, 33}) {
      const Tensor x = random(dtype, {3, 17}, 1), rows = random(dtype, {3, size}, 2);
      if (dtype == DType::f32) {
        x.data<float>()[2] = std::numeric_limits<float>::quiet_NaN();
        if (size > 1) rows.data<float>()[1] = std::numeric_limits<float>::quiet_NaN();
      }
      const Tensor sorted = Tensor::zeros({3, size}, dtype, Device{});
      kernels(Device{}).sort("sort", x, sorted, Tensor::zeros({3, size}, DType::i64, Device{}),
                             rows, false);
      const Tensor out = Tensor::zeros({3, 17}, DType::i64, Device{});
      for (const bool right : {false, true}) {
        on_both(&Kernels::search, 0, 1, out, sorted, x, right);
        on_both(&Kernels::search, 0, 1, out, sorted.detach({size}, size), x, right);
      }
    }
  }
}
