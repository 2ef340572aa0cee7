// SPDX-License-Identifier: Apache-2.0
// Scans: running sums along a dimension. f32 accumulates in f64. Threads split the lines, each of
// which one thread sums in its order.
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/dispatch.h>
#include <peal/autograd/kernels/geometry.h>

#include <algorithm>
#include <type_traits>

namespace peal::cpu {
namespace {

constexpr std::int64_t most_lines = 64;

// `count` (at most most_lines) neighbouring lines of `size` elements, each `inner` apart.
template <class T>
void scan_lines(T* out, const T* x, std::int64_t size, std::int64_t inner, std::int64_t count,
                bool reversed) {
  using Sum = std::conditional_t<std::is_floating_point_v<T>, double, T>;
  Sum sums[most_lines] = {};
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int64_t row = (reversed ? size - 1 - i : i) * inner;
    for (std::int64_t k = 0; k < count; ++k) {
      out[row + k] = static_cast<T>(sums[k] += static_cast<Sum>(x[row + k]));
    }
  }
}

}  // namespace

bool cumsum(const Tensor& out, const Tensor& x, int dim, bool reversed) {
  const Around at(x.shape(), dim);
  const auto scan = [&]<class T>() {
    const T* source = x.data<T>();
    T* target = out.data<T>();
    const std::int64_t blocks = (at.inner + most_lines - 1) / most_lines;
    const std::int64_t cost = at.size * std::min(at.inner, most_lines);
    parallel_for(at.outer * blocks, cost, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end; ++b) {
        const std::int64_t line = b % blocks * most_lines;
        const std::int64_t first = b / blocks * at.size * at.inner + line;
        scan_lines(target + first, source + first, at.size, at.inner,
                   std::min(most_lines, at.inner - line), reversed);
      }
    });
  };
  if (x.dtype() != DType::i64) return with_real(x.dtype(), scan);
  scan.template operator()<std::int64_t>();
  return true;
}

}  // namespace peal::cpu
