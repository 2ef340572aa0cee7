// SPDX-License-Identifier: Apache-2.0
// Scans: running sums, products and extremes along a dimension. f32 accumulates in f64. Threads
// split the lines, each of which one thread goes along in its order.
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/dispatch.h>
#include <peal/autograd/kernels/folds.h>
#include <peal/autograd/kernels/geometry.h>

#include <algorithm>
#include <type_traits>

namespace peal::cpu {
namespace {

constexpr std::int64_t most_lines = 64;

template <class T>
using Wide = std::conditional_t<std::is_floating_point_v<T>, double, T>;

template <class T>
struct RunningSum {
  Wide<T> sum = 0;
  T add(T x, std::int64_t) { return static_cast<T>(sum += static_cast<Wide<T>>(x)); }
};
template <class T>
struct RunningProduct {
  Wide<T> product = 1;
  T add(T x, std::int64_t) {
    return static_cast<T>(product = functor::times(product, static_cast<Wide<T>>(x)));
  }
};
template <class T>
struct RunningLogSum {
  functor::LogSum<double> sum;
  T add(T x, std::int64_t) { return static_cast<T>(sum.add(static_cast<double>(x))); }
};
template <class T, bool largest>
struct RunningBest {
  functor::BestSoFar<T> best;
  std::int64_t add(T x, std::int64_t at) { return best.add(x, at, largest); }
};

// `count` (at most most_lines) neighbouring lines of `size` elements, each `inner` apart.
template <class State, class Out, class T>
void scan_lines(Out* out, const T* x, std::int64_t size, std::int64_t inner, std::int64_t count,
                bool reversed) {
  State states[most_lines] = {};
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int64_t at = reversed ? size - 1 - i : i, row = at * inner;
    for (std::int64_t k = 0; k < count; ++k) out[row + k] = states[k].add(x[row + k], at);
  }
}

template <class State, class Out, class T>
void scan_all(const Tensor& out, const Tensor& x, int dim, bool reversed) {
  const Around at(x.shape(), dim);
  const T* source = x.data<T>();
  Out* target = out.data<Out>();
  const std::int64_t blocks = (at.inner + most_lines - 1) / most_lines;
  const std::int64_t cost = at.size * std::min(at.inner, most_lines);
  parallel_for(at.outer * blocks, cost, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      const std::int64_t line = b % blocks * most_lines;
      const std::int64_t first = b / blocks * at.size * at.inner + line;
      scan_lines<State>(target + first, source + first, at.size, at.inner,
                        std::min(most_lines, at.inner - line), reversed);
    }
  });
}

// For the reals and i64.
template <template <class> class State>
bool scan_numbers(const Tensor& out, const Tensor& x, int dim, bool reversed) {
  const auto scan = [&]<class T>() { scan_all<State<T>, T, T>(out, x, dim, reversed); };
  if (x.dtype() != DType::i64) return with_real(x.dtype(), scan);
  scan.template operator()<std::int64_t>();
  return true;
}

template <bool largest>
bool scan_places(const Tensor& out, const Tensor& x, int dim, bool reversed) {
  visit(x.dtype(), [&]<class T>() {
    if constexpr (std::is_arithmetic_v<T>) {
      scan_all<RunningBest<T, largest>, std::int64_t, T>(out, x, dim, reversed);
    }
  });
  return !is_low_precision(x.dtype());
}

}  // namespace

bool cumsum(const Tensor& out, const Tensor& x, int dim, bool reversed) {
  return scan_numbers<RunningSum>(out, x, dim, reversed);
}

bool scan(Scan op, const Tensor& out, const Tensor& x, int dim, bool reversed) {
  switch (op) {
    case Scan::prod:
      return scan_numbers<RunningProduct>(out, x, dim, reversed);
    case Scan::max:
      return scan_places<true>(out, x, dim, reversed);
    case Scan::min:
      return scan_places<false>(out, x, dim, reversed);
    case Scan::logsumexp:
      return with_real(x.dtype(),
                       [&]<class T>() { scan_all<RunningLogSum<T>, T, T>(out, x, dim, reversed); });
  }
  return false;
}

}  // namespace peal::cpu
