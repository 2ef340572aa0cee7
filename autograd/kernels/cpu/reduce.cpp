// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cpu/columns.h>
#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/runs.h>
#include <peal/autograd/kernels/cpu/sum_of_rows.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/cpu/wide_room.h>
#include <peal/autograd/kernels/dispatch.h>

#include <vector>

namespace peal::cpu {
namespace {

// Adds x's elements along the dimensions d.. of runs into total.
template <class T>
void add_all(const Runs& runs, std::size_t d, const T* x, double* total) {
  if (d + 1 >= runs.dims) {
    const std::int64_t n = runs.dims == 0 ? 1 : runs.size[d];
    if (runs.dims == 0 || runs.reduced[d]) {
      *total += real_loops<T>().sum(x, n);
    } else {
      real_loops<T>().add_to_doubles(total, x, n);
    }
    return;
  }
  for (std::int64_t i = 0; i < runs.size[d]; ++i) {
    add_all(runs, d + 1, x + i * runs.step[d], total + i * runs.out_step[d]);
  }
}

template <class T>
void store(T* out, const double* total, double scale, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = static_cast<T>(static_cast<functor::computed<T>>(total[i] * scale));
  }
}

// Few rows of any number of columns.
void add_some_rows(double* total, const BFloat16* x, const Columns& o) {
  for (std::int64_t c = 0; c < o.width; c += column_block) {
    const std::int64_t n = std::min(column_block, o.width - c);
    double sums[column_block];
    sum_columns(sums, x + c, {o.rows, o.stride, n});
    for (std::int64_t k = 0; k < n; ++k) total[c + k] += sums[k];
  }
}

// A bias's gradient: the rows of a matrix [rows, width], in low precision too. Threads take parts
// of the columns, whose sums stay in the first cache.
template <class T>
void add_rows(double* total, const T* x, std::int64_t rows, std::int64_t width) {
  using Real = typename WideRoom<T>::Real;
  constexpr std::int64_t part = 256, line = 64 / sizeof(T);
  constexpr std::int64_t step = std::is_same_v<T, BFloat16> ? 16 : 1;
  parallel_for(
      (width + part - 1) / part, rows * std::min(width, part),
      [&](std::int64_t first, std::int64_t last) {
        const WideRoom<T> room(part);
        for (std::int64_t at = first * part; at < std::min(last * part, width); at += part) {
          const std::int64_t n = std::min(part, width - at);
          for (std::int64_t row = 0; row < rows; row += step) {
            const T* here = x + row * width + at;
            // The CPU does not foresee parts of rows.
            for (std::int64_t next = row + 16; next < std::min(row + 16 + step, rows); ++next) {
              for (std::int64_t i = 0; width > part && i < n; i += line) {
                __builtin_prefetch(x + next * width + at + i);
              }
            }
            if constexpr (std::is_same_v<T, BFloat16>) {
              add_some_rows(total + at, here, {std::min(step, rows - row), width, n});
            } else {
              real_loops<Real>().add_to_doubles(total + at, room.read(here, n), n);
            }
          }
        }
      });
}

template <class T>
void sum_real(const Tensor& out, const Tensor& x, std::uint32_t mask, double scale) {
  const Runs runs(x.shape(), mask);
  const T* from = x.data<T>();
  T* to = out.data<T>();
  const std::int64_t n = x.numel();
  std::vector<double> total(static_cast<std::size_t>(out.numel()), 0.0);
  if (n == 0) return store(to, total.data(), scale, out.numel());
  if (runs.dims == 1 && runs.reduced[0]) {
    // Fixed blocks, summed in order: the same bits for any number of threads.
    constexpr std::int64_t block = 65536;
    const std::int64_t blocks = (n + block - 1) / block;
    total.assign(static_cast<std::size_t>(blocks), 0.0);
    parallel_for(blocks, block, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        total[static_cast<std::size_t>(i)] =
            real_loops<T>().sum(from + i * block, std::min(block, n - i * block));
      }
    });
    double all = 0;
    for (double part : total) all += part;
    return store(to, &all, scale, 1);
  }
  if (runs.dims > 0 && !runs.reduced[0]) {
    parallel_for(runs.size[0], n / runs.size[0], [&](std::int64_t begin, std::int64_t end) {
      Runs part = runs;
      part.size[0] = end - begin;
      add_all(part, 0, from + begin * runs.step[0], total.data() + begin * runs.out_step[0]);
    });
  } else if (runs.dims == 2) {
    add_rows(total.data(), from, runs.size[0], runs.size[1]);
  } else {
    add_all(runs, 0, from, total.data());
  }
  store(to, total.data(), scale, out.numel());
}

// Integers are summed exactly, one by one.
template <class T>
void sum_integers(const Tensor& out, const Tensor& x, std::uint32_t mask) {
  std::int64_t* to = out.data<std::int64_t>();
  std::fill_n(to, out.numel(), 0);
  const T* from = x.data<T>();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    std::int64_t rest = i, at = 0, step = 1;
    for (int d = x.dim() - 1; d >= 0; --d) {
      const std::int64_t place = rest % x.size(d);
      rest /= x.size(d);
      if ((mask >> d) & 1) continue;
      at += place * step;
      step *= x.size(d);
    }
    to[at] += static_cast<std::int64_t>(from[i]);
  }
}

}  // namespace

bool sum_of_rows(const Tensor& out, const Tensor& x, std::uint32_t dims, double scale) {
  const Runs runs(x.shape(), dims);
  if (!is_low_precision(x.dtype()) || runs.dims != 2 || !runs.reduced[0] || x.numel() == 0) {
    return false;
  }
  std::vector<double> total(static_cast<std::size_t>(out.numel()), 0.0);
  with_floating(x.dtype(), [&]<class T>() {
    add_rows(total.data(), x.data<T>(), runs.size[0], runs.size[1]);
  });
  return with_floating(out.dtype(),
                       [&]<class T>() { store(out.data<T>(), total.data(), scale, out.numel()); });
}

bool sum(const Tensor& out, const Tensor& x, std::uint32_t dims, double scale) {
  if (is_floating(x.dtype())) {
    return with_real(x.dtype(), [&]<class T>() { sum_real<T>(out, x, dims, scale); });
  }
  visit(x.dtype(), [&]<class T>() {
    if constexpr (std::is_integral_v<T>) sum_integers<T>(out, x, dims);
  });
  return true;
}

namespace {

// The first place along dim of what none beats; NaN beats all.
template <class Beats>
bool extreme_place(const Tensor& out, const Tensor& x, int dim, Beats beats) {
  std::int64_t inner = 1;
  for (int i = dim + 1; i < x.dim(); ++i) inner *= x.size(i);
  const std::int64_t n = x.size(dim), outer = out.numel() / std::max<std::int64_t>(inner, 1);
  visit(x.dtype(), [&]<class T>() {
    const T* from = x.data<T>();
    std::int64_t* to = out.data<std::int64_t>();
    parallel_for(outer, n * inner, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t o = begin; o < end; ++o) {
        for (std::int64_t i = 0; i < inner; ++i) {
          const T* run = from + o * n * inner + i;
          std::int64_t best = 0;
          for (std::int64_t k = 1; k < n; ++k) {
            const auto value = static_cast<functor::computed<T>>(run[k * inner]);
            const auto best_value = static_cast<functor::computed<T>>(run[best * inner]);
            if (beats(value, best_value) || (value != value && best_value == best_value)) best = k;
          }
          to[o * inner + i] = best;
        }
      }
    });
  });
  return true;
}

}  // namespace

bool argmax(const Tensor& out, const Tensor& x, int dim) {
  return extreme_place(out, x, dim, [](auto a, auto b) { return a > b; });
}

bool argmin(const Tensor& out, const Tensor& x, int dim) {
  return extreme_place(out, x, dim, [](auto a, auto b) { return a < b; });
}

}  // namespace peal::cpu
