// SPDX-License-Identifier: Apache-2.0
// A convolution of volumes is one of images, whose channels are those of kD slices: as weights
// [O, C, kD, kH, kW] lie they are [O, C kD, kH, kW], in groups too. The transposed one likewise.
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/conv3d.h>
#include <peal/autograd/ops/convolution.h>
#include <peal/autograd/ops/convolved.h>
#include <peal/autograd/ops/index.h>
#include <peal/autograd/ops/index_write.h>
#include <peal/autograd/ops/pad.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/ops/windows.h>

namespace peal {
namespace {

constexpr ConvForm form3d{"conv3d", "[N, C, D, H, W]", "kD, kH, kW", 5};

}  // namespace

Tensor by_windows(const Tensor& x, const DepthWindows& o) {
  const std::int64_t n = x.size(0), c = x.size(1), h = x.size(3), w = x.size(4);
  const bool all = o.kernel == 1 && o.stride == 1 && o.count == x.size(2);
  const Tensor cells =
      all ? x
          : index_select(x, 2,
                         index_of_places(cells_of_windows(o.count, o.kernel, o.stride, o.dilation),
                                         x.device()));
  const Tensor apart = reshaped(cells, {n, c, o.count, o.kernel, h, w});
  return reshaped(permute(apart, {0, 2, 1, 3, 4, 5}), {n * o.count, c * o.kernel, h, w});
}

Tensor from_windows(const Tensor& x, const DepthWindows& o, std::int64_t first, std::int64_t size) {
  const std::int64_t n = x.size(0) / o.count, c = x.size(1) / o.kernel;
  const std::int64_t h = x.size(2), w = x.size(3);
  const Tensor apart = reshaped(x, {n, o.count, c, o.kernel, h, w});
  const Tensor cells =
      reshaped(permute(apart, {0, 2, 1, 3, 4, 5}), {n, c, o.count * o.kernel, h, w});
  const Tensor zeros =
      Tensor::zeros({n, c, std::max(o.reach(), first + size), h, w}, x.dtype(), x.device());
  const Tensor index =
      index_of_places(cells_of_windows(o.count, o.kernel, o.stride, o.dilation), x.device());
  const Tensor whole = index_add(zeros, 2, index, cells);
  return whole.size(2) == size ? whole : narrow(whole, 2, first, size);
}

Tensor conv3d(const Tensor& input, const Tensor& weight, const Tensor& bias,
              const Conv3dOptions& options) {
  if (lowers(input, weight, bias)) {
    return conv3d(lowered(input), lowered(weight), lowered(bias), options);
  }
  const OpName op("conv3d");
  if (input.dim() == 4) {
    return with_batch(input, 3, [&](const Tensor& x) { return conv3d(x, weight, bias, options); });
  }
  TraceSpan span("conv3d");
  Conv3dOptions o = options;
  Tensor x = input;
  if (o.padding.same() && x.dim() == 5 && weight.dim() == 5) {
    std::vector<std::int64_t> zeros;
    for (int d = 2; d >= 0; --d) {
      const auto at = static_cast<std::size_t>(d);
      const std::int64_t all =
          same_padding("conv3d", weight.size(2 + d), o.stride[at], o.dilation[at]);
      zeros.insert(zeros.end(), {all / 2, all - all / 2});
    }
    o.padding = 0;
    x = padded(x, zeros);
  }
  const Shape out = convolved_sizes(form3d, x, weight, bias, o);
  if (o.padding.depth > 0) x = padded(x, {0, 0, 0, 0, o.padding.depth, o.padding.depth});
  const DepthWindows windows{out[0], weight.size(2), o.stride.depth, o.dilation.depth};
  const Tensor kernel = reshaped(
      weight, {weight.size(0), weight.size(1) * weight.size(2), weight.size(3), weight.size(4)});
  const Tensor y = conv2d(by_windows(x, windows), kernel, bias,
                          {o.stride.plane(), o.padding.plane(), o.dilation.plane(), o.groups});
  const Tensor slices = reshaped(y, {x.size(0), out[0], y.size(1), out[1], out[2]});
  return permute(slices, {0, 2, 1, 3, 4});
}

}  // namespace peal
