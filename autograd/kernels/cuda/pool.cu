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

// Of windows along one dimension, in 32 bits: divisions of 64 take a hundred instructions.
struct Side {
  int in, out, kernel, padding;
  Divisor stride, dilation;

  Side(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t padding,
       std::int64_t stride, std::int64_t dilation)
      : in(narrow(in)),
        out(narrow(out)),
        kernel(narrow(kernel)),
        padding(narrow(padding)),
        // A larger one has only its multiple 0 in the plane.
        stride(std::min(stride, most)),
        dilation(std::min(dilation, most)) {
    PEAL_CHECK(in + 2 * padding < most, "cuda: max_pool2d of a side of ", in, " and padding of ",
               padding, ", expected less than 2^30 together");
  }
  // The first cell of output `place`; what lies outside of the input is left out by the caller.
  __device__ int begin(int place) const { return place * static_cast<int>(stride.by) - padding; }

  // Outputs [first, last] whose window may reach `place`, which counts the padding.
  __device__ int first(int place) const {
    const int past = place - (kernel - 1) * static_cast<int>(dilation.by);  // the earliest begin
    return past <= 0 ? 0 : stride.short_quotient(past + static_cast<int>(stride.by) - 1);
  }
  __device__ int last(int place) const {
    const int fit = stride.short_quotient(place);
    return fit < out - 1 ? fit : out - 1;
  }
  // Which cell of the window of `output` lies at `place`; -1 where none does.
  __device__ int cell(int output, int place) const {
    const int distance = place - output * static_cast<int>(stride.by);
    const int cell = dilation.short_quotient(distance);
    return cell * static_cast<int>(dilation.by) == distance ? cell : -1;
  }

 private:
  static constexpr std::int64_t most = std::int64_t{1} << 30;
  static int narrow(std::int64_t n) { return static_cast<int>(std::min(n, most)); }
};

struct Sides {
  Side rows, columns;
  explicit Sides(const Pool2dGeometry& o)
      : rows(o.in_height, o.out_height, o.kernel[0], o.padding[0], o.stride[0], o.dilation[0]),
        columns(o.in_width, o.out_width, o.kernel[1], o.padding[1], o.stride[1], o.dilation[1]) {}
  // Elements of a plane may be more than 32 bits count.
  __device__ std::int64_t in_plane() const { return std::int64_t{rows.in} * columns.in; }
  __device__ std::int64_t out_plane() const { return std::int64_t{rows.out} * columns.out; }
};

template <class T>
struct MaxPool {
  Sides o;
  Pixels pixels;
  T* y;
  const T* x;
  std::uint8_t* index;
  __device__ void operator()(std::int64_t i) const {
    using C = computed<T>;
    const Pixel out = pixels.find(i);
    const T* plane = x + out.plane * o.in_plane();
    const int top = o.rows.begin(static_cast<int>(out.row));
    const int left = o.columns.begin(static_cast<int>(out.column));
    C best = -std::numeric_limits<C>::infinity();
    int where = 0;
    bool any = false;
    for (int p = 0; p < o.rows.kernel; ++p) {
      const int row = top + p * static_cast<int>(o.rows.dilation.by);
      if (row < 0 || row >= o.rows.in) continue;
      const T* line = plane + std::int64_t{row} * o.columns.in;
      for (int q = 0; q < o.columns.kernel; ++q) {
        const int column = left + q * static_cast<int>(o.columns.dilation.by);
        if (column < 0 || column >= o.columns.in) continue;
        const C value = static_cast<C>(line[column]);
        if (!any || value > best || value != value) {
          best = value;
          where = p * o.columns.kernel + q;
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
  Sides o;
  Pixels pixels;
  T* dx;
  const T* dy;
  const std::uint8_t* index;
  __device__ void operator()(std::int64_t i) const {
    const Pixel in = pixels.find(i);
    const int row = static_cast<int>(in.row) + o.rows.padding;
    const int column = static_cast<int>(in.column) + o.columns.padding;
    const int first = o.columns.first(column), last = o.columns.last(column);
    computed<T> total = 0;
    for (int r = o.rows.first(row); r <= o.rows.last(row); ++r) {
      const int p = o.rows.cell(r, row);
      if (p < 0) continue;
      const std::int64_t line = in.plane * o.out_plane() + std::int64_t{r} * o.columns.out;
      for (int c = first; c <= last; ++c) {
        const int q = o.columns.cell(c, column);
        if (q < 0 || index[line + c] != p * o.columns.kernel + q) continue;
        total += static_cast<computed<T>>(dy[line + c]);
      }
    }
    dx[i] = static_cast<T>(total);
  }
};

}  // namespace

bool max_pool2d(const Pool2dGeometry& o, const Tensor& y, const Tensor& x, const Tensor& index) {
  return with_floating(x.dtype(), [&]<class T>() {
    for_each(x, y.numel(),
             MaxPool<T>{Sides(o),
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
             MaxPoolBackward<T>{Sides(o),
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
