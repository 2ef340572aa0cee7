// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/broadcast.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/linalg.h>
#include <peal/autograd/ops/matmul.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/products.h>
#include <peal/autograd/ops/rearrange.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/strided.h>

#include <algorithm>

namespace peal {
namespace {

Tensor product_of(std::string_view op, const Tensor& a, int dims_a, const Tensor& b, int dims_b) {
  const OpName name(op);
  if (lowers(a, b)) return product_of(op, lowered(a), dims_a, lowered(b), dims_b);
  check_alike(op, a, b);
  PEAL_CHECK(a.dim() == dims_a && b.dim() == dims_b, op, ": expected operands of ", dims_a, " and ",
             dims_b, dims_b == 1 ? " dimension" : " dimensions", ", got shapes ", a.shape(),
             " and ", b.shape(), "; matmul takes any");
  const std::int64_t columns = a.size(-1), rows = b.size(dims_b == 1 ? 0 : -2);
  PEAL_CHECK(columns == rows, op, ": shapes ", a.shape(), " and ", b.shape(),
             " do not chain: ", columns, " columns meet ", rows, " rows");
  return matmul(a, b);
}

// By 0 nothing of x counts, not even what is NaN in it; its gradient is 0.
Tensor scaled(const Tensor& x, Scalar by) {
  if (by.to<double>() == 0) return where(full({}, true, DType::boolean, x.device()), 0, x);
  return by.to<double>() == 1 ? x : x * by;
}

// beta x + alpha product.
Tensor blended(std::string_view op, const Tensor& x, const Tensor& product, Scalar beta,
               Scalar alpha) {
  const OpName name(op);
  check_alike(op, x, product);
  PEAL_CHECK(is_floating(x.dtype()) || !(beta.is_floating() || alpha.is_floating()), op,
             ": expected integers as beta and alpha of ", x.dtype(), ", got ", beta, " and ",
             alpha);
  PEAL_CHECK(
      x.dim() <= product.dim() && broadcast(op, x.shape(), product.shape()) == product.shape(), op,
      ": x of shape ", x.shape(), " does not stretch to the product's shape ", product.shape());
  if (beta.to<double>() == 0 && !x.requires_grad()) return scaled(product, alpha);
  return scaled(x, beta) + scaled(product, alpha);
}

// With a product of a [dims_a dimensions] and b, computed in f32 where the type is less, and
// rounded once.
Tensor sum_with_product(std::string_view op, const Tensor& x, const Tensor& a, int dims_a,
                        const Tensor& b, int dims_b, Scalar beta, Scalar alpha) {
  const OpName name(op);
  if (lowers(x, a, b)) {
    return sum_with_product(op, lowered(x), lowered(a), dims_a, lowered(b), dims_b, beta, alpha);
  }
  check_alike(op, x, a);
  check_alike(op, a, b);
  const DType dtype = x.dtype(), within = computed_in(dtype);
  const Autocast off(DType::bf16, false);
  const Tensor product = product_of(op, cast(a, within), dims_a, cast(b, within), dims_b);
  return cast(blended(op, cast(x, within), product, beta, alpha), dtype);
}

}  // namespace

Tensor mm(const Tensor& a, const Tensor& b) { return product_of("mm", a, 2, b, 2); }
Tensor mv(const Tensor& a, const Tensor& b) { return product_of("mv", a, 2, b, 1); }
Tensor dot(const Tensor& a, const Tensor& b) {
  // Autocast leaves it alone, but for operands of two types.
  if (context().autocast && a.dtype() != b.dtype() && widens(a, b)) {
    return dot(widened(a), widened(b));
  }
  const Autocast off(DType::bf16, false);
  return product_of("dot", a, 1, b, 1);
}
Tensor bmm(const Tensor& a, const Tensor& b) {
  PEAL_CHECK(a.dim() != 3 || b.dim() != 3 || a.size(0) == b.size(0),
             "bmm: expected as many matrices of one as of the other, got shapes ", a.shape(),
             " and ", b.shape());
  return product_of("bmm", a, 3, b, 3);
}

Tensor outer(const Tensor& a, const Tensor& b) {
  const OpName op("outer");
  PEAL_CHECK(a.dim() == 1 && b.dim() == 1, "outer: expected two vectors, got shapes ", a.shape(),
             " and ", b.shape());
  return unsqueeze(a, 1) * b;
}

Tensor bilinear(const Tensor& a, const Tensor& b, const Tensor& weight, const Tensor& bias) {
  const bool mixed = a.dtype() != b.dtype() || a.dtype() != weight.dtype() ||
                     (bias.defined() && a.dtype() != bias.dtype());
  if (mixed && widens(a, b, weight, bias)) {
    return bilinear(widened(a), widened(b), widened(weight), widened(bias));
  }
  constexpr std::string_view op = "bilinear";
  const OpName name(op);
  check_floating(op, a);
  check_alike(op, a, b);
  check_alike(op, a, weight);
  PEAL_CHECK(weight.dim() == 3, op, ": expected a weight [out, in1, in2], got shape ",
             weight.shape());
  const std::int64_t out = weight.size(0), in1 = weight.size(1), in2 = weight.size(2);
  bool fits = a.dim() >= 1 && a.dim() == b.dim() && a.size(-1) == in1 && b.size(-1) == in2;
  std::int64_t rows = 1;
  for (int i = 0; fits && i < a.dim() - 1; ++i) {
    fits = a.size(i) == b.size(i);
    rows *= a.size(i);
  }
  PEAL_CHECK(fits, op, ": expected [..., ", in1, "] and [..., ", in2, "] for a weight of shape ",
             weight.shape(), ", got shapes ", a.shape(), " and ", b.shape());
  Shape result = a.shape();
  result[-1] = out;
  const Autocast off(DType::bf16, false);
  const DType within = computed_in(a.dtype());
  const Tensor form = reshaped(permute(cast(weight, within), {1, 0, 2}), {in1, out * in2});
  const Tensor half =
      reshaped(matmul(reshaped(cast(a, within), {rows, in1}), form), {rows, out, in2});
  Tensor y = sum(half * reshaped(cast(b, within), {rows, 1, in2}), {2});
  if (bias.defined()) {
    check_alike(op, a, bias);
    PEAL_CHECK(bias.shape() == Shape{out}, op, ": expected a bias [", out, "], got shape ",
               bias.shape());
    y = y + cast(bias, within);
  }
  return cast(reshaped(y, result), a.dtype());
}

Tensor cross(const Tensor& a, const Tensor& b, std::optional<int> dim) {
  const OpName name("cross");
  PEAL_CHECK(a.dim() == b.dim(), "cross: expected as many dimensions of one as of the other, got ",
             "shapes ", a.shape(), " and ", b.shape());
  PEAL_CHECK(a.dtype() != DType::boolean || b.dtype() != DType::boolean,
             "cross: expected numbers, got bool");
  int along = dim ? checked_dim("cross", a, *dim) : 0;
  while (!dim && along < a.dim() && a.size(along) != 3) ++along;
  PEAL_CHECK(along < a.dim() && a.size(along) == 3 && b.size(along) == 3,
             "cross: expected vectors of three along ",
             dim ? concat("dimension ", *dim) : std::string("a dimension"), ", got shapes ",
             a.shape(), " and ", b.shape());
  broadcast("cross", a.shape(), b.shape());
  return roll(a, -1, along) * roll(b, -2, along) - roll(a, -2, along) * roll(b, -1, along);
}
Tensor linalg::cross(const Tensor& a, const Tensor& b, int dim) { return peal::cross(a, b, dim); }

Tensor kron(const Tensor& a, const Tensor& b) {
  const OpName op("kron");
  const int dims = std::max(a.dim(), b.dim());
  PEAL_CHECK(2 * dims <= Shape::max_dims, "kron: expected at most ", Shape::max_dims / 2,
             " dimensions, got shapes ", a.shape(), " and ", b.shape());
  Shape of_a, of_b, result;
  for (int i = -dims; i < 0; ++i) {
    const std::int64_t left = -i > a.dim() ? 1 : a.size(i), right = -i > b.dim() ? 1 : b.size(i);
    of_a.push_back(left);
    of_a.push_back(1);
    of_b.push_back(1);
    of_b.push_back(right);
    result.push_back(left * right);
  }
  return reshaped(reshaped(a, of_a) * reshaped(b, of_b), result);
}

Tensor addmm(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
  return sum_with_product("addmm", x, a, 2, b, 2, beta, alpha);
}
Tensor addmv(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
  return sum_with_product("addmv", x, a, 2, b, 1, beta, alpha);
}
Tensor baddbmm(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
  PEAL_CHECK(a.dim() != 3 || b.dim() != 3 || a.size(0) == b.size(0),
             "baddbmm: expected as many matrices of one as of the other, got shapes ", a.shape(),
             " and ", b.shape());
  return sum_with_product("baddbmm", x, a, 3, b, 3, beta, alpha);
}

}  // namespace peal
