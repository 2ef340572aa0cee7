// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cpu/convolution.h>
#include <peal/autograd/kernels/cpu/gemm.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/dispatch.h>

#include <algorithm>

namespace peal::cpu {
namespace {

// The channels of one group of one image as a matrix [C kH kW, H' W']: column p holds the window
// under output pixel p. f(cell, pixel) for each cell and the input pixel it stands for (-1:
// padding), row by row.
template <class F>
void each_cell(const Conv2dGeometry& o, F&& f) {
  std::int64_t cell = 0;
  for (std::int64_t c = 0; c < o.in_channels / o.groups; ++c) {
    for (std::int64_t p = 0; p < o.kernel_height; ++p) {
      for (std::int64_t q = 0; q < o.kernel_width; ++q) {
        for (std::int64_t i = 0; i < o.out_height; ++i) {
          const std::int64_t row = i * o.stride[0] + p * o.dilation[0] - o.padding[0];
          for (std::int64_t j = 0; j < o.out_width; ++j, ++cell) {
            const std::int64_t column = j * o.stride[1] + q * o.dilation[1] - o.padding[1];
            const bool inside = row >= 0 && row < o.in_height && column >= 0 && column < o.in_width;
            f(cell, inside ? (c * o.in_height + row) * o.in_width + column : -1);
          }
        }
      }
    }
  }
}

// Elements of one group of one image; `channels` of the result.
struct GroupSizes {
  std::int64_t channels, window, pixels, image, result, weight;
  explicit GroupSizes(const Conv2dGeometry& o)
      : channels(o.out_channels / o.groups),
        window(o.in_channels / o.groups * o.kernel_height * o.kernel_width),
        pixels(o.out_height * o.out_width),
        image(o.in_channels / o.groups * o.in_height * o.in_width),
        result(channels * pixels),
        weight(channels * window) {}
};

}  // namespace

void conv2d_columns(const Conv2dGeometry& o, const Tensor& y, const Tensor& x, const Tensor& weight,
                    const Tensor& bias) {
  const GroupSizes n(o);
  with_real(x.dtype(), [&]<class T>() {
    const Tensor columns = Tensor::empty({n.window, n.pixels}, x.dtype(), Device{});
    T* cells = columns.data<T>();
    for (std::int64_t part = 0; part < o.batch * o.groups; ++part) {
      const std::int64_t group = part % o.groups, first = group * n.channels;
      const T* image = x.data<T>() + part * n.image;
      T* result = y.data<T>() + part * n.result;
      each_cell(o, [&](std::int64_t cell, std::int64_t pixel) {
        cells[cell] = pixel < 0 ? T(0) : image[pixel];
      });
      for (std::int64_t c = 0; c < n.channels; ++c) {
        std::fill_n(result + c * n.pixels, n.pixels,
                    bias.defined() ? bias.data<T>()[first + c] : T(0));
      }
      gemm(result, weight.data<T>() + group * n.weight, cells, {n.channels, n.pixels, n.window},
           true);
    }
  });
}

void conv2d_columns_backward(const Conv2dGeometry& o, const Tensor& dx, const Tensor& dweight,
                             const Tensor& dbias, const Tensor& dy, const Tensor& x,
                             const Tensor& weight) {
  if (dbias.defined()) sum(dbias, dy, 0b1101, 1.0);
  const GroupSizes n(o);
  with_real(x.dtype(), [&]<class T>() {
    const Tensor columns = Tensor::empty({n.window, n.pixels}, x.dtype(), Device{});
    T* cells = columns.data<T>();
    if (dx.defined()) std::fill_n(dx.data<T>(), dx.numel(), T(0));
    if (dweight.defined()) std::fill_n(dweight.data<T>(), dweight.numel(), T(0));
    for (std::int64_t part = 0; part < o.batch * o.groups; ++part) {
      const std::int64_t at = part % o.groups * n.weight;
      const T* grad = dy.data<T>() + part * n.result;
      if (dweight.defined()) {
        const T* image = x.data<T>() + part * n.image;
        each_cell(o, [&](std::int64_t cell, std::int64_t pixel) {
          cells[cell] = pixel < 0 ? T(0) : image[pixel];
        });
        gemm(dweight.data<T>() + at, grad, cells, {n.channels, n.window, n.pixels, false, true},
             true);
      }
      if (dx.defined()) {
        gemm(cells, weight.data<T>() + at, grad, {n.window, n.pixels, n.channels, true, false},
             false);
        T* image = dx.data<T>() + part * n.image;
        each_cell(o, [&](std::int64_t cell, std::int64_t pixel) {
          if (pixel >= 0) image[pixel] += cells[cell];
        });
      }
    }
  });
}

}  // namespace peal::cpu
