// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/grad.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/distance.h>
#include <peal/autograd/ops/index.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/matmul.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/spread.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/ops/windows.h>
#include <peal/autograd/tape.h>

#include <cmath>
#include <vector>

namespace peal {
namespace {

// Along dim, which stays with size 1.
Tensor norm_along(std::string_view op, const Tensor& x, double p, int dim) {
  PEAL_CHECK(p >= 0, op, ": expected a norm of p >= 0, got ", p);
  return norm(x, p, dim, true);
}

// Of squares that may be a little below 0; the gradient there is 0.
Tensor root(const Tensor& squares) {
  const Tensor none = le(squares, 0);
  return where(none, 0.0, sqrt(where(none, 1.0, squares)));
}

// pdist made of ops, which have gradients of gradients, and which every device has.
Tensor distances_by_ops(std::string_view op, const Tensor& x, double p) {
  std::vector<std::int64_t> first, second;
  for (std::int64_t i = 0; i < x.size(0); ++i) {
    for (std::int64_t j = i + 1; j < x.size(0); ++j) {
      first.push_back(i);
      second.push_back(j);
    }
  }
  const auto chosen = [&](const std::vector<std::int64_t>& rows) {
    return index_select(x, 0, index_of_places(rows, x.device()));
  };
  return squeeze(norm_along(op, chosen(first) - chosen(second), p, 1), 1);
}

Tensor distances_by_kernel(std::string_view op, const Tensor& x) {
  const TraceSpan span(op);
  const RowPairs pairs{x.size(0), x.size(1)};
  const Tensor y = Tensor::empty({pairs.count()}, x.dtype(), x.device());
  kernels(x.device()).row_distances(op, x, pairs, y, x);
  return record(op, y, {x}, [op, pairs, x = save(x), y = save(y)](const Tensor& g) {
    if (backward_is_recorded()) {
      const Tensor rows = reshaped(x(), x().shape());  // without the graph before it
      return autograd::grad({distances_by_ops(op, rows, 2)}, {rows},
                            {.grad_outputs = {g}, .create_graph = true})[0];
    }
    Tensor dx = Tensor::empty(x().shape(), g.dtype(), g.device());
    kernels(g.device()).row_distances_backward(op, g, pairs, dx, g, y(), x());
    return dx;
  });
}

}  // namespace

Tensor pairwise_distance(const Tensor& a, const Tensor& b, double p, double eps, bool keepdim) {
  if (widens(a, b)) return pairwise_distance(widened(a), widened(b), p, eps, keepdim);
  constexpr std::string_view op = "pairwise_distance";
  const OpName name(op);
  check_alike(op, a, b);
  check_floating(op, a);
  const DType within = computed_in(a.dtype());
  const Tensor away = cast(a, within) - cast(b, within) + eps;
  const Tensor norm = cast(norm_along(op, away, p, checked_dim(op, away, -1)), a.dtype());
  return keepdim ? norm : squeeze(norm, -1);
}

Tensor cdist(const Tensor& a, const Tensor& b, double p) {
  if (widens(a, b)) return cdist(widened(a), widened(b), p);
  const Autocast off(DType::bf16, false);  // a product of rows is what distances are made of
  constexpr std::string_view op = "cdist";
  const OpName name(op);
  check_alike(op, a, b);
  check_floating(op, a);
  PEAL_CHECK(a.dim() >= 2 && b.dim() >= 2 && a.size(-1) == b.size(-1),
             "cdist: expected rows [..., P, D] and [..., R, D], got shapes ", a.shape(), " and ",
             b.shape());
  const DType within = computed_in(a.dtype());
  const Tensor x = cast(a, within), y = cast(b, within);
  if (p == 2 && (a.size(-2) > 25 || b.size(-2) > 25)) {
    const Tensor of_y = unsqueeze(sum(square(y), {-1}), -2);
    const Tensor squares = sum(square(x), {-1}, true) + of_y - matmul(x, y, false, true) * 2;
    return cast(root(squares), a.dtype());
  }
  return cast(squeeze(norm_along(op, unsqueeze(x, -2) - unsqueeze(y, -3), p, -1), -1), a.dtype());
}

Tensor pdist(const Tensor& x, double p) {
  if (widens(x)) return pdist(widened(x), p);
  constexpr std::string_view op = "pdist";
  const OpName name(op);
  check_floating(op, x);
  PEAL_CHECK(x.dim() == 2, op, ": expected rows [N, D], got shape ", x.shape());
  const Tensor wide = cast(x, computed_in(x.dtype()));
  const bool by_kernel = p == 2 && kernels(x.device()).row_distances;
  return cast(by_kernel ? distances_by_kernel(op, wide) : distances_by_ops(op, wide, p), x.dtype());
}

Tensor cosine_similarity(const Tensor& a, const Tensor& b, int dim, double eps) {
  if (widens(a, b)) return cosine_similarity(widened(a), widened(b), dim, eps);
  constexpr std::string_view op = "cosine_similarity";
  const OpName name(op);
  check_alike(op, a, b);
  check_floating(op, a);
  const DType within = computed_in(a.dtype());
  const Tensor x = cast(a, within), y = cast(b, within), product = x * y;
  const int at = checked_dim(op, product, dim) - product.dim();
  const auto length = [&](const Tensor& of) {
    return clamp(norm(of, 2, checked_dim(op, of, at), true), eps);
  };
  const Tensor cosine = sum(product / (length(x) * length(y)), {at});
  return cast(cosine, a.dtype());
}

Tensor normalize(const Tensor& x, double p, int dim, double eps) {
  if (widens(x)) return normalize(widened(x), p, dim, eps);
  constexpr std::string_view op = "normalize";
  const OpName name(op);
  check_floating(op, x);
  const Tensor wide = cast(x, computed_in(x.dtype()));
  return cast(wide / clamp(norm_along(op, wide, p, checked_dim(op, x, dim)), eps), x.dtype());
}

}  // namespace peal
