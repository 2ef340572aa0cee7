// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/ops/activation.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/binary_math.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/scatter.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/ops/unpool.h>

namespace peal {
namespace {

// Of numbers a dimension each.
template <class Kernel, class Options>
Tensor values_back(std::string_view op, const Tensor& x, const Tensor& indices,
                   const Kernel& kernel, const Options& o, int dims) {
  const OpName name(op);
  PEAL_CHECK((x.dim() == dims + 2 || x.dim() == dims + 1) && indices.shape() == x.shape() &&
                 indices.dtype() == DType::i64,
             op, ": expected [N, C] or [C] and ", dims, " dimensions more, and i64 indices of the ",
             "same shape, got ", x.shape(), " and ", indices.dtype(), " ", indices.shape());
  const Kernel stride = o.stride.value_or(kernel), padding = o.padding;
  const int first = x.dim() - dims;
  Shape shape = x.shape();
  std::int64_t plane = 1;
  for (int d = 0; d < dims; ++d) {
    const auto at = static_cast<std::size_t>(d);
    const std::int64_t usual = (x.size(first + d) - 1) * stride[at] - 2 * padding[at] + kernel[at];
    shape[first + d] = o.output_size ? (*o.output_size)[at] : usual;
    PEAL_CHECK(std::abs(shape[first + d] - usual) < stride[at] && shape[first + d] > 0, op,
               ": expected an output_size within ", stride[at], " of ", usual, " in dimension ",
               first + d, ", got ", shape[first + d]);
    plane *= shape[first + d];
  }
  Shape flat;
  for (int i = 0; i < first; ++i) flat.push_back(x.size(i));
  flat.push_back(plane);
  const Tensor zeros = Tensor::zeros(flat, x.dtype(), x.device());
  return reshaped(scatter(zeros, first, flatten(indices, first), flatten(x, first)), shape);
}

// From the means of powers over windows of so many cells. The slope of a root at 0 is infinite; a
// window of zeros, as relu leaves them, has none.
Tensor root_of(const Tensor& mean, double p, std::int64_t cells) {
  const Tensor sum = sign(mean) * relu(abs(mean)) * static_cast<double>(cells);
  if (p < 0) return pow(sum, 1 / p);
  const Tensor none = eq(sum, 0);
  return where(none, 0.0, pow(where(none, 1.0, sum), 1 / p));
}

}  // namespace

Tensor max_unpool1d(const Tensor& x, const Tensor& indices, std::int64_t kernel,
                    const MaxUnpool1dOptions& o) {
  return values_back("max_unpool1d", x, indices, Single(kernel), o, 1);
}
Tensor max_unpool2d(const Tensor& x, const Tensor& indices, Pair kernel,
                    const MaxUnpool2dOptions& o) {
  return values_back("max_unpool2d", x, indices, kernel, o, 2);
}
Tensor max_unpool3d(const Tensor& x, const Tensor& indices, Triple kernel,
                    const MaxUnpool3dOptions& o) {
  return values_back("max_unpool3d", x, indices, kernel, o, 3);
}

Tensor lp_pool1d(const Tensor& x, double p, std::int64_t kernel, PoolStride1d stride,
                 bool ceil_mode) {
  const OpName op("lp_pool1d");
  return root_of(avg_pool1d(pow(x, p), kernel, {.stride = stride, .ceil_mode = ceil_mode}), p,
                 kernel);
}
Tensor lp_pool2d(const Tensor& x, double p, Pair kernel, PoolStride stride, bool ceil_mode) {
  const OpName op("lp_pool2d");
  return root_of(avg_pool2d(pow(x, p), kernel, {.stride = stride, .ceil_mode = ceil_mode}), p,
                 kernel[0] * kernel[1]);
}
Tensor lp_pool3d(const Tensor& x, double p, Triple kernel, PoolStride3d stride, bool ceil_mode) {
  const OpName op("lp_pool3d");
  return root_of(avg_pool3d(pow(x, p), kernel, {.stride = stride, .ceil_mode = ceil_mode}), p,
                 kernel[0] * kernel[1] * kernel[2]);
}

}  // namespace peal
