// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/fractional_pool.h>
#include <peal/autograd/ops/index.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/random.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/strided.h>

namespace peal {
namespace {

constexpr const char* fractional = "fractional_max_pool2d";

// Where `count` windows of `kernel` cells begin in a line of `size`, of each sample: [N, C, count].
Tensor begins_of(const Tensor& samples, int which, std::int64_t size, std::int64_t kernel,
                 std::int64_t count) {
  const std::int64_t n = samples.size(0), c = samples.size(1), last = size - kernel;
  const Tensor at_end = full({n, c, 1}, last, DType::i64, samples.device());
  if (count == 1) return at_end;
  const double step = static_cast<double>(last) / static_cast<double>(count - 1);
  const Tensor sample = narrow(samples, 2, which, 1);
  const Tensor i = arange(count - 1, samples.dtype(), samples.device());
  const Tensor begins = floor((i + sample) * step) - floor(sample * step);
  return cat({cast(begins, DType::i64), at_end}, 2);
}

Pair size_of_result(const Tensor& x, Pair kernel, const FractionalMaxPool2dOptions& o) {
  PEAL_CHECK(o.output_size.has_value() != o.output_ratio.has_value(), fractional,
             ": expected either an output_size or an output_ratio");
  const std::int64_t height = x.size(-2), width = x.size(-1);
  Pair size = o.output_size.value_or(0);
  if (o.output_ratio) {
    const auto [of_height, of_width] = *o.output_ratio;
    PEAL_CHECK(of_height > 0 && of_height < 1 && of_width > 0 && of_width < 1, fractional,
               ": expected an output_ratio between 0 and 1, got ", of_height, " and ", of_width);
    size = {static_cast<std::int64_t>(static_cast<double>(height) * of_height),
            static_cast<std::int64_t>(static_cast<double>(width) * of_width)};
  }
  PEAL_CHECK(kernel.height > 0 && kernel.width > 0 && size.height > 0 && size.width > 0 &&
                 size.height + kernel.height - 1 <= height &&
                 size.width + kernel.width - 1 <= width,
             fractional, ": ", size.height, " x ", size.width, " windows of ", kernel.height, " x ",
             kernel.width, " do not fit into shape ", x.shape());
  return size;
}

}  // namespace

Extreme fractional_max_pool2d_with_indices(const Tensor& x, Pair kernel,
                                           const FractionalMaxPool2dOptions& o) {
  const OpName name(fractional);
  TraceSpan span(fractional);
  check_floating(fractional, x);
  PEAL_CHECK(x.dim() == 3 || x.dim() == 4, fractional,
             ": expected [N, C, H, W] or [C, H, W], got shape ", x.shape());
  const auto [rows, columns] = size_of_result(x, kernel, o);
  const std::int64_t n = x.dim() == 4 ? x.size(0) : 1, c = x.size(-3), height = x.size(-2),
                     width = x.size(-1);
  Tensor samples = o.random_samples;
  if (!samples.defined()) {
    samples = rand({n, c, 2}, x.dtype() == DType::f64 ? DType::f64 : DType::f32, x.device());
  }
  PEAL_CHECK(samples.shape() == Shape({n, c, 2}), fractional, ": expected random_samples of shape ",
             Shape({n, c, 2}), ", got ", samples.shape());
  const Tensor top = begins_of(samples, 1, height, kernel.height, rows),
               left = begins_of(samples, 0, width, kernel.width, columns);
  const Tensor down = arange(kernel.height, DType::i64, x.device()),
               right = arange(kernel.width, DType::i64, x.device());
  const Tensor line = unsqueeze(top, 3) + down, cell = unsqueeze(left, 3) + right;
  const Tensor places = line.reshape({n, c, rows, 1, kernel.height, 1}) * width +
                        cell.reshape({n, c, 1, columns, 1, kernel.width});
  const std::int64_t window = kernel.height * kernel.width;
  const Tensor flat = places.reshape({n, c, rows * columns * window});
  const Tensor windows = gather(reshaped(x, {n, c, height * width}), 2, flat);
  const Extreme largest = max(windows.reshape({n, c, rows * columns, window}), 3, true);
  const Tensor indices = gather(flat.reshape({n, c, rows * columns, window}), 3, largest.indices);
  Shape shape = x.shape();
  shape[x.dim() - 2] = rows;
  shape[x.dim() - 1] = columns;
  return {reshaped(largest.values, shape), reshaped(indices, shape)};
}

Tensor fractional_max_pool2d(const Tensor& x, Pair kernel, const FractionalMaxPool2dOptions& o) {
  return fractional_max_pool2d_with_indices(x, kernel, o).values;
}

}  // namespace peal
