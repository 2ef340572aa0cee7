// SPDX-License-Identifier: Apache-2.0
// Pooling: a thread an output, and backward a thread an input, which looks at the windows over it
// in their order. So sums have the CPU's order and nothing is added by atomic operations.
#include <peal/autograd/core/cuda/launch.h>
#include <peal/autograd/kernels/cuda/block.h>
#include <peal/autograd/kernels/cuda/places.h>
#include <peal/autograd/kernels/cuda/table.h>
#include <peal/autograd/kernels/dispatch.h>

#include <algorithm>
#include <limits>

namespace peal::cuda {

using functor::computed;

namespace {

// Element i of [planes, height, width].
struct Pixel {
  std::int64_t plane, row, column;
};
struct Pixels {
  Divisor height, width;
  __device__ Pixel find(std::int64_t i) const {
    const std::int64_t line = width.quotient(i), plane = height.quotient(line);
    return {plane, line - plane * height.by, i - line * width.by};
  }
};

// Outputs [first, last] whose window of `kernel` cells may reach the input at `place` (padding
// added), along one dimension.
struct Reach {
  std::int64_t first, last;
  __device__ Reach(std::int64_t place, std::int64_t extent, std::int64_t stride, std::int64_t out) {
    const std::int64_t past = place - extent + 1;  // where a window begins that ends here
    first = past <= 0 ? 0 : (past + stride - 1) / stride;
    last = place / stride < out - 1 ? place / stride : out - 1;
  }
};

template <class T>
struct MaxPool {
  Pool2dGeometry o;
  Pixels pixels;
  T* y;
  const T* x;
  std::uint8_t* index;
  __device__ void operator()(std::int64_t i) const {
    using C = computed<T>;
    const Pixel out = pixels.find(i);
    const T* plane = x + out.plane * o.in_height * o.in_width;
    C best = -std::numeric_limits<C>::infinity();
    int where = 0, cell = 0;
    bool any = false;
    for (std::int64_t p = 0; p < o.kernel[0]; ++p) {
      const std::int64_t row = out.row * o.stride[0] - o.padding[0] + p * o.dilation[0];
      for (std::int64_t q = 0; q < o.kernel[1]; ++q, ++cell) {
        const std::int64_t column = out.column * o.stride[1] - o.padding[1] + q * o.dilation[1];
        if (row < 0 || row >= o.in_height || column < 0 || column >= o.in_width) continue;
        const C value = static_cast<C>(plane[row * o.in_width + column]);
        if (!any || value > best || value != value) {
          best = value;
          where = cell;
        }
        any = true;
      }
    }
    y[i] = static_cast<T>(best);
    index[i] = static_cast<std::uint8_t>(where);
  }
};

template <class T>
struct MaxPoolBackward {
  Pool2dGeometry o;
  Pixels pixels;
  T* dx;
  const T* dy;
  const std::uint8_t* index;
  __device__ void operator()(std::int64_t i) const {
    const Pixel in = pixels.find(i);
    const std::int64_t row = in.row + o.padding[0], column = in.column + o.padding[1];
    const Reach rows(row, (o.kernel[0] - 1) * o.dilation[0] + 1, o.stride[0], o.out_height);
    const Reach columns(column, (o.kernel[1] - 1) * o.dilation[1] + 1, o.stride[1], o.out_width);
    computed<T> total = 0;
    for (std::int64_t r = rows.first; r <= rows.last; ++r) {
      const std::int64_t down = row - r * o.stride[0];
      if (o.dilation[0] != 1 && down % o.dilation[0] != 0) continue;
      const std::int64_t p = o.dilation[0] == 1 ? down : down / o.dilation[0];
      for (std::int64_t c = columns.first; c <= columns.last; ++c) {
        const std::int64_t right = column - c * o.stride[1];
        if (o.dilation[1] != 1 && right % o.dilation[1] != 0) continue;
        const std::int64_t q = o.dilation[1] == 1 ? right : right / o.dilation[1];
        const std::int64_t at = (in.plane * o.out_height + r) * o.out_width + c;
        if (index[at] == p * o.kernel[1] + q) total += static_cast<computed<T>>(dy[at]);
      }
    }
    dx[i] = static_cast<T>(total);
  }
};

}  // namespace

bool max_pool2d(const Pool2dGeometry& o, const Tensor& y, const Tensor& x, const Tensor& index) {
  return with_floating(x.dtype(), [&]<class T>() {
    for_each(x, y.numel(),
             MaxPool<T>{o,
                        {o.out_height, o.out_width},
                        pointer<T>(y),
                        pointer<const T>(x),
                        pointer<std::uint8_t>(index)});
  });
}

bool max_pool2d_backward(const Pool2dGeometry& o, const Tensor& dx, const Tensor& dy,
                         const Tensor& index) {
  return with_floating(dx.dtype(), [&]<class T>() {
    for_each(dx, dx.numel(),
             MaxPoolBackward<T>{o,
                                {o.in_height, o.in_width},
                                pointer<T>(dx),
                                pointer<const T>(dy),
                                pointer<const std::uint8_t>(index)});
  });
}

namespace {

// Along one dimension: the input [begin, end) behind an output, and what it counts as.
struct Window {
  std::int64_t begin, end, counted;
};

__device__ Window window(const AveragePool2d& o, int d, std::int64_t i) {
  const std::int64_t in = d == 0 ? o.in_height : o.in_width;
  if (o.adaptive) {
    const std::int64_t out = d == 0 ? o.out_height : o.out_width;
    const std::int64_t begin = i * in / out, end = ((i + 1) * in + out - 1) / out;
    return {begin, end, end - begin};
  }
  const std::int64_t begin = i * o.stride[d] - o.padding[d];
  const std::int64_t whole = begin + o.kernel[d];
  const std::int64_t end = whole < in + o.padding[d] ? whole : in + o.padding[d];
  const std::int64_t first = begin > 0 ? begin : 0, last = end < in ? end : in;
  return {first, last, o.counts_padding ? end - begin : last - first};
}

// The outputs whose windows lie over an input.
__device__ Reach reach(const AveragePool2d& o, int d, std::int64_t place) {
  const std::int64_t in = d == 0 ? o.in_height : o.in_width;
  const std::int64_t out = d == 0 ? o.out_height : o.out_width;
  if (!o.adaptive) return Reach(place + o.padding[d], o.kernel[d], o.stride[d], out);
  Reach all(0, 1, 1, out);
  all.first = place * out / in;
  all.last = ((place + 1) * out + in - 1) / in - 1;
  return all;
}

template <class T>
struct AveragePool {
  AveragePool2d o;
  Pixels pixels;
  T* y;
  const T* x;
  __device__ void operator()(std::int64_t i) const {
    using C = computed<T>;
    const Pixel out = pixels.find(i);
    const Window rows = window(o, 0, out.row), columns = window(o, 1, out.column);
    const T* plane = x + out.plane * o.in_height * o.in_width;
    C total = 0;
    for (std::int64_t p = rows.begin; p < rows.end; ++p) {
      for (std::int64_t q = columns.begin; q < columns.end; ++q) {
        total += static_cast<C>(plane[p * o.in_width + q]);
      }
    }
    y[i] = static_cast<T>(total / static_cast<C>(rows.counted * columns.counted));
  }
};

template <class T>
struct AveragePoolBackward {
  AveragePool2d o;
  Pixels pixels;
  T* dx;
  const T* dy;
  __device__ void operator()(std::int64_t i) const {
    using C = computed<T>;
    const Pixel in = pixels.find(i);
    const Reach rows = reach(o, 0, in.row), columns = reach(o, 1, in.column);
    C total = 0;
    for (std::int64_t r = rows.first; r <= rows.last; ++r) {
      const std::int64_t high = window(o, 0, r).counted;
      for (std::int64_t c = columns.first; c <= columns.last; ++c) {
        const std::int64_t at = (in.plane * o.out_height + r) * o.out_width + c;
        total += static_cast<C>(dy[at]) / static_cast<C>(high * window(o, 1, c).counted);
      }
    }
    dx[i] = static_cast<T>(total);
  }
};

}  // namespace

bool avg_pool2d(const AveragePool2d& o, const Tensor& y, const Tensor& x) {
  const std::int64_t plane = o.in_height * o.in_width;
  if (o.adaptive && o.out_height == 1 && o.out_width == 1 && is_floating(x.dtype())) {
    // The mean of all: many threads a plane.
    return sum(y.detach({o.planes}), x.detach({o.planes, plane}), 2,
               1 / static_cast<double>(plane));
  }
  return with_floating(x.dtype(), [&]<class T>() {
    for_each(x, y.numel(),
             AveragePool<T>{o, {o.out_height, o.out_width}, pointer<T>(y), pointer<const T>(x)});
  });
}

bool avg_pool2d_backward(const AveragePool2d& o, const Tensor& dx, const Tensor& dy) {
  return with_floating(dx.dtype(), [&]<class T>() {
    for_each(
        dx, dx.numel(),
        AveragePoolBackward<T>{o, {o.in_height, o.in_width}, pointer<T>(dx), pointer<const T>(dy)});
  });
}

}  // namespace peal::cuda
