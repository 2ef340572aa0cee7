// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/dispatch.h>

#include <algorithm>

namespace peal::cpu {
namespace {

// Along one dimension: the input [begin, end) behind an output, and what it counts as.
struct Window {
  std::int64_t begin, end, counted;
};

Window window(const AveragePool2d& o, std::size_t d, std::int64_t i) {
  const std::int64_t in = d == 0 ? o.in_height : o.in_width;
  if (o.adaptive) {
    const std::int64_t out = d == 0 ? o.out_height : o.out_width;
    const std::int64_t begin = i * in / out, end = ((i + 1) * in + out - 1) / out;
    return {begin, end, end - begin};
  }
  const std::int64_t begin = i * o.stride[d] - o.padding[d];
  const std::int64_t end = std::min(begin + o.kernel[d], in + o.padding[d]);
  const std::int64_t first = std::max<std::int64_t>(begin, 0), last = std::min(end, in);
  return {first, last, o.counts_padding ? end - begin : last - first};
}

// f(output pixel, window of rows, window of columns).
template <class F>
void each_window(const AveragePool2d& o, F&& f) {
  for (std::int64_t i = 0; i < o.out_height; ++i) {
    const Window rows = window(o, 0, i);
    for (std::int64_t j = 0; j < o.out_width; ++j) {
      f(i * o.out_width + j, rows, window(o, 1, j));
    }
  }
}

}  // namespace

bool avg_pool2d(const AveragePool2d& o, const Tensor& y, const Tensor& x) {
  const std::int64_t in = o.in_height * o.in_width, out = o.out_height * o.out_width;
  return with_real(x.dtype(), [&]<class T>() {
    parallel_for(o.planes, in, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t plane = begin; plane < end; ++plane) {
        const T* from = x.data<T>() + plane * in;
        T* to = y.data<T>() + plane * out;
        each_window(o, [&](std::int64_t at, const Window& rows, const Window& columns) {
          double total = 0;
          for (std::int64_t p = rows.begin; p < rows.end; ++p) {
            for (std::int64_t q = columns.begin; q < columns.end; ++q) {
              total += static_cast<double>(from[p * o.in_width + q]);
            }
          }
          to[at] = static_cast<T>(total / static_cast<double>(rows.counted * columns.counted));
        });
      }
    });
  });
}

bool avg_pool2d_backward(const AveragePool2d& o, const Tensor& dx, const Tensor& dy) {
  const std::int64_t in = o.in_height * o.in_width, out = o.out_height * o.out_width;
  return with_real(dx.dtype(), [&]<class T>() {
    parallel_for(o.planes, in, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t plane = begin; plane < end; ++plane) {
        const T* from = dy.data<T>() + plane * out;
        T* to = dx.data<T>() + plane * in;
        std::fill_n(to, in, T(0));
        each_window(o, [&](std::int64_t at, const Window& rows, const Window& columns) {
          const T share = from[at] / static_cast<T>(rows.counted * columns.counted);
          for (std::int64_t p = rows.begin; p < rows.end; ++p) {
            for (std::int64_t q = columns.begin; q < columns.end; ++q) {
              to[p * o.in_width + q] += share;
            }
          }
        });
      }
    });
  });
}

}  // namespace peal::cpu
