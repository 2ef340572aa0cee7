// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/index.h>
#include <peal/autograd/ops/pool.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/tape.h>

namespace peal {
namespace {

void check_images(std::string_view op, const Tensor& x) {
  const OpName name(op);
  check_floating(op, x);
  PEAL_CHECK(x.dim() == 4 && x.size(2) > 0 && x.size(3) > 0, op,
             ": expected [N, C, H, W], got shape ", x.shape());
}

// The gradient of average(), whose own is average().
Tensor spread(std::string_view op, const Tensor& g, const AveragePool2d& o, const Shape& shape);

Tensor average(std::string_view op, const Tensor& x, const AveragePool2d& o) {
  TraceSpan span(op);
  const Tensor y =
      Tensor::empty({x.size(0), x.size(1), o.out_height, o.out_width}, x.dtype(), x.device());
  kernels(x.device()).avg_pool2d(op, x, o, y, x);
  return record(op, y, {x},
                [op, o, shape = x.shape()](const Tensor& g) { return spread(op, g, o, shape); });
}

Tensor spread(std::string_view op, const Tensor& g, const AveragePool2d& o, const Shape& shape) {
  const OpName name(op);
  Tensor dx = Tensor::empty(shape, g.dtype(), g.device());
  kernels(g.device()).avg_pool2d_backward(op, g, o, dx, g);
  return record(op, dx, {g}, [op, o](const Tensor& gg) { return average(op, gg, o); });
}

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

// The gradient of max_pool2d, whose own reads where the largest were.
Tensor unpooled(const Tensor& g, const Pool2dGeometry& o, const Tensor& index, const Shape& shape) {
  const OpName op("max_pool2d");
  Tensor dx = Tensor::empty(shape, g.dtype(), g.device());
  kernels(g.device()).max_pool2d_backward("max_pool2d", g, o, dx, g, index);
  return record("max_pool2d", dx, {g}, [o, index](const Tensor& gg) {
    return reshaped(gather(flatten(gg, 2), 2, places(o, index)), index.shape());
  });
}

}  // namespace

Tensor max_pool2d(const Tensor& x, Pair kernel, const MaxPool2dOptions& options) {
  TraceSpan span("max_pool2d");
  check_floating("max_pool2d", x);
  PEAL_CHECK(x.dim() == 4, "max_pool2d: expected [N, C, H, W], got shape ", x.shape());
  const Pair stride = options.stride.value_or(kernel);
  Shape out{x.size(0), x.size(1)};
  for (std::size_t d = 0; d < 2; ++d) {
    const std::int64_t size = x.size(2 + static_cast<int>(d)), padding = options.padding[d];
    PEAL_CHECK(padding >= 0 && 2 * padding <= kernel[d] && options.dilation[d] >= 1,
               "max_pool2d: expected a padding of at most half of the window and a dilation of at "
               "least 1, got ",
               padding, " and ", options.dilation[d], " with a window of ", kernel[0], " x ",
               kernel[1]);
    const std::int64_t room = size + 2 * padding - options.dilation[d] * (kernel[d] - 1) - 1;
    const std::int64_t ragged = options.ceil_mode ? stride[d] - 1 : 0;
    PEAL_CHECK(kernel[d] >= 1 && stride[d] >= 1 && size >= 1 && room + ragged >= 0,
               "max_pool2d: a window of ", kernel[0], " x ", kernel[1], " with stride ", stride[d],
               " does not fit into shape ", x.shape());
    std::int64_t count = (room + ragged) / stride[d] + 1;
    // A last window that is cut off counts if it begins before the padding on the right.
    if (options.ceil_mode && (count - 1) * stride[d] >= size + padding) --count;
    out.push_back(count);
  }
  PEAL_CHECK(kernel[0] * kernel[1] <= 256, "max_pool2d: a window of at most 256 elements, got ",
             kernel[0], " x ", kernel[1]);
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
  kernels(x.device()).max_pool2d("max_pool2d", x, o, y, x, index);
  return record("max_pool2d", y, {x}, [o, index, shape = x.shape()](const Tensor& g) {
    return unpooled(g, o, index, shape);
  });
}

Tensor avg_pool2d(const Tensor& x, Pair kernel, const AvgPool2dOptions& options) {
  check_images("avg_pool2d", x);
  const Pair stride = options.stride.value_or(kernel);
  std::array<std::int64_t, 2> out{};
  for (std::size_t d = 0; d < 2; ++d) {
    const std::int64_t padding = options.padding[d];
    const std::int64_t room = x.size(2 + static_cast<int>(d)) + 2 * padding - kernel[d];
    PEAL_CHECK(
        kernel[d] >= 1 && stride[d] >= 1 && padding >= 0 && 2 * padding <= kernel[d] && room >= 0,
        "avg_pool2d: a window of ", kernel[0], " x ", kernel[1], " with stride ", stride[d],
        " and padding ", padding, " does not fit into shape ", x.shape());
    out[d] = room / stride[d] + 1;
  }
  return average(
      "avg_pool2d", x,
      {x.size(0) * x.size(1), x.size(2), x.size(3), out[0], out[1], false, kernel.array(),
       stride.array(), options.padding.array(), options.count_include_pad});
}

Tensor adaptive_avg_pool2d(const Tensor& x, Pair size) {
  check_images("adaptive_avg_pool2d", x);
  PEAL_CHECK(size[0] >= 1 && size[1] >= 1,
             "adaptive_avg_pool2d: expected sizes of at least 1, got ", size[0], " x ", size[1]);
  return average(
      "adaptive_avg_pool2d", x,
      {x.size(0) * x.size(1), x.size(2), x.size(3), size[0], size[1], true, {}, {}, {}, true});
}

}  // namespace peal
