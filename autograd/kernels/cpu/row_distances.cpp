// SPDX-License-Identifier: Apache-2.0
// Distances of each two rows. Threads split the rows, and back the columns, which no two of them
// write; the sums do not depend on their number.
#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/dispatch.h>

#include <algorithm>

namespace peal::cpu {
namespace {

// Where the pairs of row i with those after it begin.
std::int64_t first_pair(const RowPairs& o, std::int64_t i) { return i * (2 * o.rows - i - 1) / 2; }

}  // namespace

bool row_distances(const RowPairs& o, const Tensor& y, const Tensor& x) {
  return with_real(y.dtype(), [&]<class T>() {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    parallel_for(o.rows, o.rows * o.width, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        norm_loops<T>().distances(to + first_pair(o, i), from + i * o.width,
                                  from + (i + 1) * o.width, o.rows - i - 1, o.width);
      }
    });
  });
}

bool row_distances_backward(const RowPairs& o, const Tensor& dx, const Tensor& dy, const Tensor& y,
                            const Tensor& x) {
  return with_real(dx.dtype(), [&]<class T>() {
    const T *from = x.data<T>(), *away = y.data<T>(), *grad = dy.data<T>();
    T* to = dx.data<T>();
    std::fill_n(to, dx.numel(), T(0));
    parallel_for(o.width, o.rows * o.rows, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = 0; i < o.rows; ++i) {
        const std::int64_t pair = first_pair(o, i), at = i * o.width + begin, next = at + o.width;
        norm_loops<T>().distances_backward(to + at, to + next, grad + pair, away + pair, from + at,
                                           from + next, o.rows - i - 1, end - begin, o.width);
      }
    });
  });
}

}  // namespace peal::cpu
