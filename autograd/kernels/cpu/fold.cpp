// SPDX-License-Identifier: Apache-2.0
// Products, extremes, any and all over some dimensions. Products are made in f64 or i64. Threads
// split what is kept; where all goes into one, fixed blocks, so that the bits do not depend on
// their number.
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/runs.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/folds.h>

#include <algorithm>
#include <memory>

namespace peal::cpu {
namespace {

template <Reduce op, class T>
struct Fold {
  static constexpr bool truth = op == Reduce::any || op == Reduce::all;
  static constexpr bool real = std::is_floating_point_v<T>;
  using Wide = std::conditional_t<real, double, std::int64_t>;
  using S = std::conditional_t<truth, bool, std::conditional_t<op == Reduce::prod, Wide, T>>;
  using Result = std::conditional_t<op == Reduce::prod && real, T, S>;

  static S start() { return functor::Folding<S>{op}.start(); }
  static S step(S a, S b) { return functor::Folding<S>{op}(a, b); }
  static S element(T x) {
    if constexpr (truth) return x != T(0);
    return static_cast<S>(x);
  }

  // Folds x's elements along the dimensions d.. of runs into total.
  static void add(const Runs& runs, std::size_t d, const T* x, S* total) {
    if (d + 1 >= runs.dims) {
      const std::int64_t n = runs.dims == 0 ? 1 : runs.size[d];
      if (runs.dims == 0 || runs.reduced[d]) {
        S all = *total;
        for (std::int64_t i = 0; i < n; ++i) all = step(all, element(x[i]));
        *total = all;
      } else {
        for (std::int64_t i = 0; i < n; ++i) total[i] = step(total[i], element(x[i]));
      }
      return;
    }
    for (std::int64_t i = 0; i < runs.size[d]; ++i) {
      add(runs, d + 1, x + i * runs.step[d], total + i * runs.out_step[d]);
    }
  }

  static void run(const Tensor& out, const Tensor& x, std::uint32_t mask) {
    const Runs runs(x.shape(), mask);
    const T* from = x.data<T>();
    Result* to = out.data<Result>();
    const std::int64_t n = x.numel(), results = out.numel();
    const bool one = runs.dims == 1 && runs.reduced[0];
    constexpr std::int64_t block = 65536;
    const std::int64_t blocks = one ? (n + block - 1) / block : results;
    const std::unique_ptr<S[]> total(new S[static_cast<std::size_t>(blocks)]);
    std::fill_n(total.get(), blocks, start());
    if (n > 0 && one) {
      parallel_for(blocks, block, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          Runs part = runs;
          part.size[0] = std::min(block, n - i * block);
          add(part, 0, from + i * block, &total[static_cast<std::size_t>(i)]);
        }
      });
      for (std::int64_t i = 1; i < blocks; ++i)
        total[0] = step(total[0], total[static_cast<std::size_t>(i)]);
    } else if (n > 0 && runs.dims > 0 && !runs.reduced[0]) {
      parallel_for(runs.size[0], n / runs.size[0], [&](std::int64_t begin, std::int64_t end) {
        Runs part = runs;
        part.size[0] = end - begin;
        add(part, 0, from + begin * runs.step[0], total.get() + begin * runs.out_step[0]);
      });
    } else if (n > 0) {
      add(runs, 0, from, total.get());
    }
    for (std::int64_t i = 0; i < results; ++i) {
      to[i] = static_cast<Result>(one && n == 0 ? start() : total[static_cast<std::size_t>(i)]);
    }
  }
};

template <Reduce op>
bool fold(const Tensor& out, const Tensor& x, std::uint32_t mask) {
  visit(x.dtype(), [&]<class T>() {
    if constexpr (std::is_arithmetic_v<T>) Fold<op, T>::run(out, x, mask);
  });
  return true;
}

}  // namespace

bool reduce(Reduce op, const Tensor& out, const Tensor& x, std::uint32_t dims) {
  if (is_low_precision(x.dtype())) return false;
  switch (op) {
    case Reduce::prod:
      return fold<Reduce::prod>(out, x, dims);
    case Reduce::amax:
      return fold<Reduce::amax>(out, x, dims);
    case Reduce::amin:
      return fold<Reduce::amin>(out, x, dims);
    case Reduce::any:
      return fold<Reduce::any>(out, x, dims);
    case Reduce::all:
      return fold<Reduce::all>(out, x, dims);
  }
  return false;
}

}  // namespace peal::cpu
