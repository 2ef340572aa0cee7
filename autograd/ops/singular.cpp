// SPDX-License-Identifier: Apache-2.0
// What linalg.h makes of singular values: pseudoinverses, ranks, and norms of matrices.
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/linalg.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/matmul.h>
#include <peal/autograd/ops/matrices.h>
#include <peal/autograd/ops/rearrange.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/spread.h>
#include <peal/autograd/tape.h>

#include <algorithm>
#include <cmath>

namespace peal::linalg {
namespace {

// Which of the singular values s [..., k] of a count.
Tensor counting(const Tensor& s, const Tensor& a, const Tolerance& tolerance) {
  const double least = tolerance.atol.value_or(0), longer = std::max(a.size(-2), a.size(-1));
  const double relative = tolerance.rtol.value_or(least > 0 ? 0 : longer * epsilon_of(a.dtype()));
  if (s.size(-1) == 0) return s > 0;
  return s > clamp(amax(s, {-1}, true) * relative, least);
}

Tensor norm_of(const Tensor& x, const std::vector<int>& dims, bool keepdim, auto of_matrices) {
  constexpr std::string_view op = "linalg.matrix_norm";
  check_floating(op, x);
  PEAL_CHECK(dims.size() == 2 && x.dim() >= 2, op, ": expected two dimensions, got ", dims.size(),
             " of shape ", x.shape());
  const int first = checked_dim(op, x, dims[0]), second = checked_dim(op, x, dims[1]);
  PEAL_CHECK(first != second, op, ": dimension ", first, " of shape ", x.shape(),
             " is named twice");
  const Tensor wide = cast(x, computed_in(x.dtype()));
  const bool last = first == x.dim() - 2 && second == x.dim() - 1;
  Tensor norm = of_matrices(last ? wide : movedim(wide, {first, second}, {-2, -1}));
  for (const int dim : {std::min(first, second), std::max(first, second)}) {
    if (keepdim) norm = unsqueeze(norm, dim);
  }
  return cast(norm, x.dtype());
}

}  // namespace

Tensor pinv(const Tensor& a, const Tolerance& tolerance) {
  constexpr std::string_view op = "linalg.pinv";
  const OpName name(op);
  const TraceSpan span(op);
  const Tensor wide = on_host(op, a);
  Tensor p;
  {
    const NoGrad guard;
    const Svd parts = svd(wide, false);
    const Tensor counts = counting(parts.S, a, tolerance);
    const Tensor inverse = where(counts, 1 / where(counts, parts.S, 1.0), 0.0);
    p = matmul(parts.Vh, parts.U * unsqueeze(inverse, -2), true, true);
  }
  return as_before(a, record(op, p, {wide}, [a = save(wide), p = save(p)](const Tensor& g) {
                     const Tensor a_p = matmul(a(), p()), p_a = matmul(p(), a());
                     const Tensor g_p = matmul(g, p(), true), p_g = matmul(p(), g, false, true);
                     // -p^T g p^T + (1 - a p) g^T p p^T + p^T p g^T (1 - p a)
                     const Tensor left = matmul(g_p, p(), false, true),
                                  right = matmul(p(), p_g, true);
                     return left - matmul(a_p, left) + right - matmul(right, p_a) -
                            matmul(matmul(p(), g, true), p(), false, true);
                   }));
}

Tensor matrix_rank(const Tensor& a, const Tolerance& tolerance) {
  const OpName name("linalg.matrix_rank");
  const NoGrad guard;
  const Tensor counts = counting(svdvals(on_host("linalg.matrix_rank", a)), a, tolerance);
  return sum(cast(counts, DType::i64), {-1}).to(a.device());
}

Tensor matrix_norm(const Tensor& x, MatrixNorm ord, const std::vector<int>& dims, bool keepdim) {
  const OpName name("linalg.matrix_norm");
  return norm_of(x, dims, keepdim, [&](const Tensor& a) {
    return ord == MatrixNorm::fro ? norm(a, 2, {-2, -1}) : sum(svdvals(a), {-1});
  });
}

Tensor matrix_norm(const Tensor& x, double ord, const std::vector<int>& dims, bool keepdim) {
  const OpName name("linalg.matrix_norm");
  const double of = std::abs(ord);
  PEAL_CHECK(of == 1 || of == 2 || std::isinf(of),
             "linalg.matrix_norm: expected 1, 2 or infinity, or one of these less than 0, got ",
             ord);
  return norm_of(x, dims, keepdim, [&](const Tensor& a) {
    const Tensor sizes = of == 2 ? svdvals(a) : sum(abs(a), {of == 1 ? -2 : -1});
    return ord > 0 ? amax(sizes, {-1}) : amin(sizes, {-1});
  });
}

}  // namespace peal::linalg
