// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/matmul.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/shape.h>
#include <peal/nn/init.h>
#include <peal/nn/layers/pairs.h>

#include <cmath>
#include <vector>

namespace peal::nn {

Bilinear::Bilinear(std::int64_t in1, std::int64_t in2, std::int64_t out, bool with_bias) {
  PEAL_CHECK(in1 > 0 && in2 > 0 && out > 0, "Bilinear: sizes must be positive, got ", in1, ", ",
             in2, " and ", out);
  const double bound = 1 / std::sqrt(static_cast<double>(in1));
  weight = add_parameter("weight", init::uniform({out, in1, in2}, bound));
  if (with_bias) bias = add_parameter("bias", init::uniform({out}, bound));
}

Tensor Bilinear::join(const Tensor& a, const Tensor& b) {
  const std::int64_t out = weight.size(0), in1 = weight.size(1), in2 = weight.size(2);
  PEAL_CHECK(a.dim() >= 1 && a.dim() == b.dim() && a.size(-1) == in1 && b.size(-1) == in2 &&
                 a.numel() / in1 == b.numel() / in2,
             "Bilinear: expected [..., ", in1, "] and [..., ", in2, "], got shapes ", a.shape(),
             " and ", b.shape());
  const std::int64_t rows = a.numel() / in1;
  const Tensor form = reshape(permute(weight, {1, 0, 2}), {in1, out * in2});
  const Tensor half = reshape(matmul(reshape(a, {rows, in1}), form), {rows, out, in2});
  Tensor y = sum(half * reshape(b, {rows, 1, in2}), {2});
  if (bias.defined()) y = y + bias;
  std::vector<std::int64_t> shape(a.shape().begin(), a.shape().end());
  shape.back() = out;
  return reshape(y, shape);
}

}  // namespace peal::nn
