// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/binary_math.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/convolved.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/index.h>
#include <peal/autograd/ops/pool.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/ops/windows.h>
#include <peal/autograd/tape.h>

namespace peal {
namespace {

// Where in its plane each window's largest lies: index counts the cells of a window.
Tensor places(const Pool2dGeometry& o, const Tensor& index) {
  const auto along = [&](std::int64_t count, std::size_t d) {
    return arange(count, DType::i64, index.device()) * o.stride[d] - o.padding[d];
  };
  const std::int64_t width = o.kernel[1];
  const Tensor row = cast(cast(index, DType::f32) / width, DType::i64);
  const Tensor column = cast(index, DType::i64) - row * width;
  const Tensor y = unsqueeze(along(o.out_height, 0), 1) + row * o.dilation[0];
  const Tensor x = along(o.out_width, 1) + column * o.dilation[1];
  return flatten(y * o.in_width + x, 2);
}

// The gradient of a max pool, whose own reads where the largest were.
Tensor unpooled(std::string_view op, const Tensor& g, const Pool2dGeometry& o, const Tensor& index,
                const Shape& shape) {
  const OpName name(op);
  Tensor dx = Tensor::empty(shape, g.dtype(), g.device());
  kernels(g.device()).max_pool2d_backward(op, g, o, dx, g, index);
  return record(op, dx, {g}, [o, index](const Tensor& gg) {
    return reshaped(gather(flatten(gg, 2), 2, places(o, index)), index.shape());
  });
}

// Of x [N, C, H, W]; indices only where they are asked for.
Extreme pooled(std::string_view op, const Tensor& x, Pair kernel, const MaxPool2dOptions& options,
               bool indices) {
  const OpName name(op);
  TraceSpan span(op);
  check_floating(op, x);
  PEAL_CHECK(x.dim() == 4, op, ": expected [N, C, H, W], got shape ", x.shape());
  const Pair stride = options.stride.value_or(kernel);
  Shape out{x.size(0), x.size(1)};
  std::vector<PoolWindows> windows;
  for (std::size_t d = 0; d < 2; ++d) {
    const std::int64_t size = x.size(2 + static_cast<int>(d)), padding = options.padding[d];
    PEAL_CHECK(padding >= 0 && 2 * padding <= kernel[d] && options.dilation[d] >= 1, op,
               ": expected a padding of at most half of the window and a dilation of at least 1, "
               "got ",
               padding, " and ", options.dilation[d], " with a window of ", kernel[0], " x ",
               kernel[1]);
    const bool right = kernel[d] >= 1 && stride[d] >= 1 && size >= 1;
    windows.push_back({kernel[d], stride[d], padding, options.dilation[d], options.ceil_mode});
    const std::int64_t count = right ? windows[d].count(size) : 0;
    PEAL_CHECK(count >= 1, op, ": a window of ", kernel[0], " x ", kernel[1], " with stride ",
               stride[d], " does not fit into shape ", x.shape());
    out.push_back(count);
  }
  if (kernel[0] * kernel[1] > 256) {  // more than the kernels' index counts
    std::vector<Cells> cells;
    for (std::size_t d = 0; d < 2; ++d) {
      const int dim = 2 + static_cast<int>(d);
      cells.push_back(cells_inside(op, x.size(dim), out[dim], windows[d]));
    }
    return largest_in_cells(x, cells);
  }
  const Pool2dGeometry o{x.size(0) * x.size(1),
                         x.size(2),
                         x.size(3),
                         out[2],
                         out[3],
                         kernel.array(),
                         stride.array(),
                         options.padding.array(),
                         options.dilation.array()};
  Tensor y = Tensor::empty(out, x.dtype(), x.device());
  const Tensor index = Tensor::empty(out, DType::u8, x.device());
  kernels(x.device()).max_pool2d(op, x, o, y, x, index);
  const Tensor values = record(op, y, {x}, [op, o, index, shape = x.shape()](const Tensor& g) {
    return unpooled(op, g, o, index, shape);
  });
  return {values, indices ? reshaped(places(o, index), out) : Tensor()};
}

Extreme pooled1d(const Tensor& input, std::int64_t kernel, const MaxPool1dOptions& o,
                 bool indices) {
  constexpr std::string_view op = "max_pool1d";
  return extremes_with_batch(input, 1, [&](const Tensor& x) -> Extreme {
    PEAL_CHECK(x.dim() == 3, op, ": expected [N, C, L] or [C, L], got shape ", input.shape());
    const Extreme found = pooled(
        op, unsqueeze(x, 2), {1, kernel},
        {{1, o.stride.value_or(kernel).length}, {0, o.padding}, {1, o.dilation}, o.ceil_mode},
        indices);
    return {squeeze(found.values, 2), indices ? squeeze(found.indices, 2) : Tensor()};
  });
}

// The largest of each slice, and of those along the depth.
Extreme pooled3d(const Tensor& input, Triple kernel, const MaxPool3dOptions& o, bool indices) {
  constexpr std::string_view op = "max_pool3d";
  const OpName name(op);
  return extremes_with_batch(input, 3, [&](const Tensor& x) -> Extreme {
    PEAL_CHECK(x.dim() == 5, op, ": expected [N, C, D, H, W] or [C, D, H, W], got shape ",
               input.shape());
    const Triple stride = o.stride.value_or(kernel);
    const std::int64_t n = x.size(0), c = x.size(1), d = x.size(2);
    const Extreme plane =
        pooled(op, reshaped(x, {n, c * d, x.size(3), x.size(4)}), kernel.plane(),
               {stride.plane(), o.padding.plane(), o.dilation.plane(), o.ceil_mode}, indices);
    const std::int64_t h = plane.values.size(2), w = plane.values.size(3);
    const Extreme deep =
        pooled(op, reshaped(plane.values, {n, c, d, h * w}), {kernel[0], 1},
               {{stride[0], 1}, {o.padding[0], 0}, {o.dilation[0], 1}, o.ceil_mode}, indices);
    const Shape result{n, c, deep.values.size(2), h, w};
    if (!indices) return {reshaped(deep.values, result), {}};
    const Tensor places = flatten(deep.indices, 2);  // in [D, H' W']
    const Tensor within = gather(reshaped(plane.indices, {n, c, d * h * w}), 2, places);
    const Tensor slice = floor_divide(places, h * w);
    return {reshaped(deep.values, result),
            reshaped(slice * (x.size(3) * x.size(4)) + within, result)};
  });
}

Extreme pooled2d(const Tensor& input, Pair kernel, const MaxPool2dOptions& options, bool indices) {
  const OpName op("max_pool2d");
  if (input.dim() == 4) return pooled("max_pool2d", input, kernel, options, indices);
  return extremes_with_batch(
      input, 2, [&](const Tensor& x) { return pooled("max_pool2d", x, kernel, options, indices); });
}

}  // namespace

Tensor max_pool1d(const Tensor& x, std::int64_t kernel, const MaxPool1dOptions& options) {
  return pooled1d(x, kernel, options, false).values;
}
Tensor max_pool2d(const Tensor& x, Pair kernel, const MaxPool2dOptions& options) {
  return pooled2d(x, kernel, options, false).values;
}
Tensor max_pool3d(const Tensor& x, Triple kernel, const MaxPool3dOptions& options) {
  return pooled3d(x, kernel, options, false).values;
}
Extreme max_pool1d_with_indices(const Tensor& x, std::int64_t kernel,
                                const MaxPool1dOptions& options) {
  return pooled1d(x, kernel, options, true);
}
Extreme max_pool2d_with_indices(const Tensor& x, Pair kernel, const MaxPool2dOptions& options) {
  return pooled2d(x, kernel, options, true);
}
Extreme max_pool3d_with_indices(const Tensor& x, Triple kernel, const MaxPool3dOptions& options) {
  return pooled3d(x, kernel, options, true);
}

}  // namespace peal
