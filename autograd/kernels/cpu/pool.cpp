// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/cpu/wide_room.h>
#include <peal/autograd/kernels/dispatch.h>

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

namespace peal::cpu {
namespace {

// Windows with holes, or that reach over the edge. Cells count as in the index: p * kernel[1] + q.
struct Cell {
  std::int64_t row, column;
  bool inside;
};

Cell cell(const Pool2dGeometry& o, std::int64_t i, std::int64_t j, std::int64_t p, std::int64_t q) {
  const std::int64_t row = i * o.stride[0] - o.padding[0] + p * o.dilation[0];
  const std::int64_t column = j * o.stride[1] - o.padding[1] + q * o.dilation[1];
  return {row, column, row >= 0 && row < o.in_height && column >= 0 && column < o.in_width};
}

template <class T>
void max_pool_cells(const Pool2dGeometry& o, T* y, std::uint8_t* index, const T* x) {
  for (std::int64_t i = 0; i < o.out_height; ++i) {
    for (std::int64_t j = 0; j < o.out_width; ++j, ++y, ++index) {
      bool any = false;
      *y = -std::numeric_limits<T>::infinity();
      *index = 0;
      for (std::int64_t p = 0; p < o.kernel[0]; ++p) {
        for (std::int64_t q = 0; q < o.kernel[1]; ++q) {
          const Cell at = cell(o, i, j, p, q);
          if (!at.inside) continue;
          const T value = x[at.row * o.in_width + at.column];
          if (!any || value > *y || value != value) {
            *y = value;
            *index = static_cast<std::uint8_t>(p * o.kernel[1] + q);
          }
          any = true;
        }
      }
    }
  }
}

template <class T>
void max_pool_cells_backward(const Pool2dGeometry& o, T* dx, const T* dy,
                             const std::uint8_t* index) {
  std::fill_n(dx, o.in_height * o.in_width, T(0));
  for (std::int64_t i = 0; i < o.out_height; ++i) {
    for (std::int64_t j = 0; j < o.out_width; ++j, ++dy, ++index) {
      const Cell at = cell(o, i, j, *index / o.kernel[1], *index % o.kernel[1]);
      if (at.inside) dx[at.row * o.in_width + at.column] += *dy;
    }
  }
}

// Planes that 2 x 2 windows divide evenly are one tall plane, whose end, where a vector does not
// fit, comes but once.
bool halved(const Pool2dGeometry& o) {
  constexpr std::array<std::int64_t, 2> two{2, 2};
  return o.plain() && o.kernel == two && o.stride == two && o.in_height == 2 * o.out_height &&
         o.in_width == 2 * o.out_width;
}
Pool2dGeometry stacked(Pool2dGeometry o, std::int64_t planes) {
  o.in_height *= planes;
  o.out_height *= planes;
  o.planes = 1;
  return o;
}

}  // namespace

bool max_pool2d(const Pool2dGeometry& o, const Tensor& y, const Tensor& x, const Tensor& index) {
  const std::int64_t in = o.in_height * o.in_width, out = o.out_height * o.out_width;
  return with_floating(x.dtype(), [&]<class T>() {
    using Real = typename WideRoom<T>::Real;
    const T* from = x.data<T>();
    T* to = y.data<T>();
    std::uint8_t* where = index.data<std::uint8_t>();
    const auto pool = o.plain() ? masked_loops<Real>().max_pool : max_pool_cells<Real>;
    parallel_for(o.planes, in, [&](std::int64_t begin, std::int64_t end) {
      if constexpr (!std::is_same_v<T, Half>) {
        if (halved(o)) {
          return masked_loops<T>().max_pool(stacked(o, end - begin), to + begin * out,
                                            where + begin * out, from + begin * in);
        }
      }
      const WideRoom<T> wide(in), result(out);
      for (std::int64_t plane = begin; plane < end; ++plane) {
        const Real* cells = wide.read(from + plane * in, in);
        result.write(to + plane * out, out,
                     [&](Real* largest) { pool(o, largest, where + plane * out, cells); });
      }
    });
  });
}

bool max_pool2d_backward(const Pool2dGeometry& o, const Tensor& dx, const Tensor& dy,
                         const Tensor& index) {
  const std::int64_t in = o.in_height * o.in_width, out = o.out_height * o.out_width;
  return with_floating(dx.dtype(), [&]<class T>() {
    using Real = typename WideRoom<T>::Real;
    T* to = dx.data<T>();
    const T* from = dy.data<T>();
    const std::uint8_t* where = index.data<std::uint8_t>();
    const auto pool =
        o.plain() ? masked_loops<Real>().max_pool_backward : max_pool_cells_backward<Real>;
    parallel_for(o.planes, in, [&](std::int64_t begin, std::int64_t end) {
      if constexpr (!std::is_same_v<T, Half>) {
        if (halved(o)) {
          return masked_loops<T>().max_pool_backward(stacked(o, end - begin), to + begin * in,
                                                     from + begin * out, where + begin * out);
        }
      }
      const WideRoom<T> wide(out), result(in);
      for (std::int64_t plane = begin; plane < end; ++plane) {
        const Real* grads = wide.read(from + plane * out, out);
        result.write(to + plane * in, in,
                     [&](Real* cells) { pool(o, cells, grads, where + plane * out); });
      }
    });
  });
}

}  // namespace peal::cpu
