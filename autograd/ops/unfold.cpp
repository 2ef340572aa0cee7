// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/convolved.h>
#include <peal/autograd/ops/index.h>
#include <peal/autograd/ops/index_write.h>
#include <peal/autograd/ops/pad.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/ops/unfold.h>
#include <peal/autograd/ops/windows.h>

namespace peal {
namespace {

// The windows over an image with its padding, which is of this size.
struct Columns {
  Pair size, windows;
  std::vector<std::int64_t> places;  // of each cell in each window, where it lies
};

Columns columns_of(std::string_view op, Pair image, Pair kernel, const UnfoldOptions& o) {
  Columns columns{image, 1, {}};
  std::array<std::int64_t, 2> size{}, windows{};
  for (std::size_t d = 0; d < 2; ++d) {
    PEAL_CHECK(kernel[d] >= 1 && o.stride[d] >= 1 && o.dilation[d] >= 1 && o.padding[d] >= 0, op,
               ": expected a kernel, strides and dilations of at least 1 and padding of at least "
               "0, got ",
               kernel[d], ", ", o.stride[d], ", ", o.dilation[d], " and ", o.padding[d]);
    size[d] = image[d] + 2 * o.padding[d];
    const std::int64_t room = size[d] - o.dilation[d] * (kernel[d] - 1) - 1;
    PEAL_CHECK(room >= 0, op, ": a kernel of ", kernel[0], " x ", kernel[1],
               " does not fit into an image of ", image[0], " x ", image[1], " with padding ",
               o.padding[d]);
    windows[d] = room / o.stride[d] + 1;
  }
  columns.size = {size[0], size[1]};
  columns.windows = {windows[0], windows[1]};
  columns.places.reserve(static_cast<std::size_t>(kernel[0] * kernel[1] * windows[0] * windows[1]));
  for (std::int64_t p = 0; p < kernel[0]; ++p) {
    for (std::int64_t q = 0; q < kernel[1]; ++q) {
      for (std::int64_t i = 0; i < windows[0]; ++i) {
        const std::int64_t row = i * o.stride[0] + p * o.dilation[0];
        for (std::int64_t j = 0; j < windows[1]; ++j) {
          columns.places.push_back(row * size[1] + j * o.stride[1] + q * o.dilation[1]);
        }
      }
    }
  }
  return columns;
}

}  // namespace

Tensor unfold(const Tensor& x, int dim, std::int64_t size, std::int64_t step) {
  constexpr std::string_view op = "unfold";
  const OpName name(op);
  const int at = checked_dim(op, x, dim);
  PEAL_CHECK(size >= 1 && size <= x.size(at) && step >= 1, op,
             ": expected a step of at least 1 and windows of 1 to ", x.size(at),
             " elements for dimension ", dim, " of shape ", x.shape(), ", got ", step, " and ",
             size);
  const std::int64_t windows = (x.size(at) - size) / step + 1;
  const Tensor cells =
      index_select(x, at, index_of_places(cells_of_windows(windows, size, step, 1), x.device()));
  std::vector<int> order;
  for (int i = 0; i <= x.dim(); ++i) {
    if (i != at + 1) order.push_back(i);
  }
  order.push_back(at + 1);
  return part_for_caller(permute(unflatten(cells, at, {windows, size}), order), x);
}

Tensor unfold(const Tensor& input, Pair kernel, const UnfoldOptions& o) {
  constexpr std::string_view op = "unfold";
  const OpName name(op);
  PEAL_CHECK(input.dim() == 3 || input.dim() == 4, op, ": expected [N, C, H, W] or [C, H, W], got ",
             "shape ", input.shape());
  return with_batch(input, 2, [&](const Tensor& x) {
    const Columns columns = columns_of(op, {x.size(2), x.size(3)}, kernel, o);
    const Tensor wide = padded(x, {o.padding[1], o.padding[1], o.padding[0], o.padding[0]});
    const Tensor cells =
        index_select(flatten(wide, 2), 2, index_of_places(columns.places, x.device()));
    return reshaped(cells, {x.size(0), x.size(1) * kernel[0] * kernel[1],
                            columns.windows[0] * columns.windows[1]});
  });
}

Tensor fold(const Tensor& input, Pair output_size, Pair kernel, const UnfoldOptions& o) {
  constexpr std::string_view op = "fold";
  const OpName name(op);
  PEAL_CHECK(input.dim() == 2 || input.dim() == 3, op,
             ": expected [N, C kH kW, L] or [C kH kW, L], got shape ", input.shape());
  return with_batch(input, 1, [&](const Tensor& x) {
    const Columns columns = columns_of(op, output_size, kernel, o);
    const std::int64_t cells = kernel[0] * kernel[1];
    const std::int64_t windows = columns.windows[0] * columns.windows[1];
    PEAL_CHECK(x.size(1) % cells == 0 && x.size(2) == windows, op,
               ": expected columns of a multiple of ", cells, " elements, one for each of ",
               windows, " windows, got shape ", input.shape());
    const std::int64_t n = x.size(0), c = x.size(1) / cells, h = columns.size[0],
                       w = columns.size[1];
    const Tensor sums = index_add(Tensor::zeros({n, c, h * w}, x.dtype(), x.device()), 2,
                                  index_of_places(columns.places, x.device()),
                                  reshaped(x, {n, c, cells * windows}));
    return padded(reshaped(sums, {n, c, h, w}),
                  {-o.padding[1], -o.padding[1], -o.padding[0], -o.padding[0]});
  });
}

}  // namespace peal
