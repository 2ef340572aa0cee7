// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/averaged.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/convolved.h>
#include <peal/autograd/ops/pad.h>
#include <peal/autograd/ops/pool.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/ops/windows.h>
#include <peal/autograd/tape.h>

namespace peal {
namespace {

// The gradient of average(), whose own is average().
Tensor spread(std::string_view op, const Tensor& g, const AveragePool2d& o, const Shape& shape) {
  const OpName name(op);
  Tensor dx = Tensor::empty(shape, g.dtype(), g.device());
  kernels(g.device()).avg_pool2d_backward(op, g, o, dx, g);
  return record(op, dx, {g}, [op, o](const Tensor& gg) { return average(op, gg, o); });
}

Tensor averaged(std::string_view op, const Tensor& x, Pair kernel, const AvgPool2dOptions& o) {
  const OpName name(op);
  check_images(op, x);
  const Pair stride = o.stride.value_or(kernel);
  std::array<std::int64_t, 2> out{};
  for (std::size_t d = 0; d < 2; ++d) {
    const std::int64_t padding = o.padding[d];
    const bool right = kernel[d] >= 1 && stride[d] >= 1 && padding >= 0 && 2 * padding <= kernel[d];
    const PoolWindows windows{kernel[d], stride[d], padding, 1, o.ceil_mode};
    out[d] = right ? windows.count(x.size(2 + static_cast<int>(d))) : 0;
    PEAL_CHECK(out[d] >= 1, op, ": a window of ", kernel[0], " x ", kernel[1], " with stride ",
               stride[d], " and padding ", padding, " does not fit into shape ", x.shape());
  }
  return average(op, x,
                 {x.size(0) * x.size(1), x.size(2), x.size(3), out[0], out[1], false,
                  kernel.array(), stride.array(), o.padding.array(), o.count_include_pad});
}

// Zeros before and behind a dimension so that every window lies in it, for padded().
std::vector<std::int64_t> whole_windows(std::string_view op, std::int64_t size,
                                        const PoolWindows& o) {
  PEAL_CHECK(o.kernel >= 1 && o.stride >= 1 && o.padding >= 0 && 2 * o.padding <= o.kernel &&
                 o.count(size) >= 1,
             op, ": a window of ", o.kernel, " with stride ", o.stride, " and padding ", o.padding,
             " does not fit into ", size, " elements");
  return {o.padding, (o.count(size) - 1) * o.stride + o.kernel - o.padding - size};
}

// The same means with every cell of padding an element, times the share of `divisor`.
template <class Kernel, class Options, class Pool>
Tensor divided_by(std::string_view op, const Tensor& x, const Kernel& kernel, const Options& o,
                  int dims, const Pool& pool) {
  PEAL_CHECK(*o.divisor_override != 0, op, ": the divisor is 0");
  const Kernel stride = o.stride.value_or(kernel);
  std::vector<std::int64_t> pads;
  std::int64_t cells = 1;
  for (int d = dims - 1; d >= 0; --d) {
    const auto at = static_cast<std::size_t>(d);
    const auto both =
        whole_windows(op, x.size(2 + d), {kernel[at], stride[at], o.padding[at], 1, o.ceil_mode});
    pads.insert(pads.end(), both.begin(), both.end());
    cells *= kernel[at];
  }
  Options whole;
  whole.stride = o.stride;
  return pool(padded(x, pads), kernel, whole) *
         (static_cast<double>(cells) / static_cast<double>(*o.divisor_override));
}

}  // namespace

void check_images(std::string_view op, const Tensor& x) {
  const OpName name(op);
  check_floating(op, x);
  PEAL_CHECK(x.dim() == 4 && x.size(2) > 0 && x.size(3) > 0, op,
             ": expected [N, C, H, W], got shape ", x.shape());
}

Tensor average(std::string_view op, const Tensor& x, const AveragePool2d& o) {
  TraceSpan span(op);
  const Tensor y =
      Tensor::empty({x.size(0), x.size(1), o.out_height, o.out_width}, x.dtype(), x.device());
  kernels(x.device()).avg_pool2d(op, x, o, y, x);
  return record(op, y, {x},
                [op, o, shape = x.shape()](const Tensor& g) { return spread(op, g, o, shape); });
}

Tensor avg_pool2d(const Tensor& input, Pair kernel, const AvgPool2dOptions& o) {
  constexpr std::string_view op = "avg_pool2d";
  const OpName name(op);
  return with_batch(input, 2, [&](const Tensor& x) {
    if (!o.divisor_override) return averaged(op, x, kernel, o);
    check_images(op, x);
    return divided_by(op, x, kernel, o, 2, avg_pool2d);
  });
}

Tensor avg_pool1d(const Tensor& input, std::int64_t kernel, const AvgPool1dOptions& o) {
  constexpr std::string_view op = "avg_pool1d";
  const OpName name(op);
  return with_batch(input, 1, [&](const Tensor& x) {
    PEAL_CHECK(x.dim() == 3, op, ": expected [N, C, L] or [C, L], got shape ", input.shape());
    const std::int64_t stride = o.stride.value_or(kernel).length;
    return squeeze(averaged(op, unsqueeze(x, 2), {1, kernel},
                            {.stride = {1, stride},
                             .padding = {0, o.padding},
                             .ceil_mode = o.ceil_mode,
                             .count_include_pad = o.count_include_pad}),
                   2);
  });
}

Tensor avg_pool3d(const Tensor& input, Triple kernel, const AvgPool3dOptions& o) {
  constexpr std::string_view op = "avg_pool3d";
  const OpName name(op);
  return with_batch(input, 3, [&](const Tensor& x) {
    PEAL_CHECK(x.dim() == 5, op, ": expected [N, C, D, H, W] or [C, D, H, W], got shape ",
               input.shape());
    if (o.divisor_override) return divided_by(op, x, kernel, o, 3, avg_pool3d);
    const Triple stride = o.stride.value_or(kernel);
    const std::int64_t n = x.size(0), c = x.size(1), d = x.size(2);
    // Means of means, rounded once: what a window is divided by is a product of numbers, one a
    // dimension.
    const Tensor wide = cast(x, computed_in(x.dtype()));
    const Tensor planes =
        averaged(op, reshaped(wide, {n, c * d, x.size(3), x.size(4)}), kernel.plane(),
                 {.stride = {stride[1], stride[2]},
                  .padding = o.padding.plane(),
                  .ceil_mode = o.ceil_mode,
                  .count_include_pad = o.count_include_pad});
    const std::int64_t h = planes.size(2), w = planes.size(3);
    const Tensor deep = averaged(op, reshaped(planes, {n, c, d, h * w}), {kernel[0], 1},
                                 {.stride = {stride[0], 1},
                                  .padding = {o.padding[0], 0},
                                  .ceil_mode = o.ceil_mode,
                                  .count_include_pad = o.count_include_pad});
    return cast(reshaped(deep, {n, c, deep.size(2), h, w}), x.dtype());
  });
}

}  // namespace peal
