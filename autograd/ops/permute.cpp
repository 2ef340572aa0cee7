// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/tape.h>

#include <algorithm>

namespace peal {
namespace {

using Order = std::vector<int>;

Tensor permuted(std::string_view op, const Tensor& x, const Order& order) {
  TraceSpan span(op);
  const Steps dense = steps_of_dense(x.shape());
  Shape shape;
  Steps steps{};
  Order back(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto from = static_cast<std::size_t>(order[i]);
    shape.push_back(x.size(order[i]));
    steps[i] = dense[from];
    back[from] = static_cast<int>(i);
  }
  Tensor out = Tensor::empty(shape, x.dtype(), x.device());
  kernels(x.device()).read_strided(op, x, out, x, steps, 0);
  return record(op, out, {x}, [op, back](const Tensor& g) { return permuted(op, g, back); });
}

// That of a tensor which a caller has, and may mean to write.
Tensor permuted_copy(std::string_view op, const Tensor& x, const Order& order) {
  return part_for_caller(permuted(op, x, order), x);
}

// The elements of x at `at`, `at` + steps, ..., of this shape.
Tensor taken(std::string_view op, const Tensor& x, const Shape& shape, const Steps& steps,
             std::int64_t at) {
  TraceSpan span(op);
  Tensor out = Tensor::empty(shape, x.dtype(), x.device());
  kernels(x.device()).read_strided(op, x, out, x, steps, at);
  return record(op, out, {x}, [op, whole = x.shape(), steps, at](const Tensor& g) {
    return zeros_but(op, g, whole, steps, at);
  });
}

// Indices start, start + step, ..., `count` of them, along dim.
Tensor part(std::string_view op, const Tensor& x, int dim, std::int64_t start, std::int64_t count,
            std::int64_t step) {
  Steps steps = steps_of_dense(x.shape());
  const std::int64_t at = start * steps[static_cast<std::size_t>(dim)];
  steps[static_cast<std::size_t>(dim)] *= step;
  Shape shape = x.shape();
  shape[dim] = count;
  return part_for_caller(taken(op, x, shape, steps, at), x);
}

}  // namespace

bool in_one_piece(const Shape& shape, const Steps& steps) {
  const Steps dense = steps_of_dense(shape);
  for (int i = 0; i < shape.dim(); ++i) {
    const auto d = static_cast<std::size_t>(i);
    if (shape[i] != 1 && steps[d] != dense[d]) return false;
  }
  return true;
}

Tensor zeros_but(std::string_view op, const Tensor& g, const Shape& whole, const Steps& steps,
                 std::int64_t at) {
  const OpName name(op);
  const Tensor dx = Tensor::zeros(whole, g.dtype(), g.device());
  kernels(g.device()).write_strided(op, g, dx, g, steps, at);
  return record(op, dx, {g}, [op, part = g.shape(), steps, at](const Tensor& gg) {
    return taken(op, gg, part, steps, at);
  });
}

Tensor with_part(std::string_view op, const Tensor& x, const Tensor& values, const Steps& steps,
                 std::int64_t at) {
  const OpName name(op);
  const Tensor out = x.detach().clone();
  kernels(x.device()).write_strided(op, out, out, values, steps, at);
  return record(op, out, {x, values},
                [op, part = values.shape(), steps, at](const Tensor& g, Needs needs) {
                  Tensors grads(2);
                  if (needs[0]) {
                    const Tensor none = Tensor::zeros(part, g.dtype(), g.device());
                    grads[0] = with_part(op, g, none, steps, at);
                  }
                  if (needs[1]) grads[1] = part_of(op, g, part, steps, at);
                  return grads;
                });
}

Tensor part_of(std::string_view op, const Tensor& x, const Shape& shape, const Steps& steps,
               std::int64_t at) {
  if (!in_one_piece(shape, steps) || shape.numel() == 0) return taken(op, x, shape, steps, at);
  return record(op, x.detach(shape, at), {x}, [op, whole = x.shape(), steps, at](const Tensor& g) {
    return zeros_but(op, g, whole, steps, at);
  });
}

Tensor permute(const Tensor& x, const std::vector<int>& dims) {
  const OpName name("permute");
  PEAL_CHECK(static_cast<int>(dims.size()) == x.dim(), "permute: expected an order of ", x.dim(),
             " dimensions for shape ", x.shape(), ", got ", dims.size());
  Order order;
  for (const int dim : dims) {
    const int at = checked_dim("permute", x, dim);
    PEAL_CHECK(std::find(order.begin(), order.end(), at) == order.end(), "permute: dimension ", dim,
               " of shape ", x.shape(), " is named twice");
    order.push_back(at);
  }
  return permuted_copy("permute", x, order);
}

Tensor transpose(const Tensor& x, int dim0, int dim1) {
  const OpName name("transpose");
  Order order(static_cast<std::size_t>(x.dim()));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::swap(order[static_cast<std::size_t>(checked_dim("transpose", x, dim0))],
            order[static_cast<std::size_t>(checked_dim("transpose", x, dim1))]);
  return permuted_copy("transpose", x, order);
}

Tensor slice(const Tensor& x, int dim, std::int64_t start, std::int64_t end, std::int64_t step) {
  const OpName name("slice");
  const int at = checked_dim("slice", x, dim);
  PEAL_CHECK(step >= 1, "slice: expected a step of at least 1, got ", step);
  const std::int64_t size = x.size(at);
  const auto within = [size](std::int64_t i) {
    return std::clamp<std::int64_t>(i < 0 ? i + size : i, 0, size);
  };
  const std::int64_t first = within(start), last = within(end);
  return part("slice", x, at, first, last > first ? (last - first + step - 1) / step : 0, step);
}

Tensor narrow(const Tensor& x, int dim, std::int64_t start, std::int64_t length) {
  const OpName name("narrow");
  const int at = checked_dim("narrow", x, dim);
  const std::int64_t first = start < 0 ? start + x.size(at) : start;
  PEAL_CHECK(first >= 0 && length >= 0 && first + length <= x.size(at), "narrow: ", length,
             " from ", start, " on leave dimension ", dim, " of shape ", x.shape());
  return part("narrow", x, at, first, length, 1);
}

Tensor select(const Tensor& x, int dim, std::int64_t index) {
  const OpName name("select");
  const int at = checked_dim("select", x, dim);
  const std::int64_t i = index < 0 ? index + x.size(at) : index;
  PEAL_CHECK(i >= 0 && i < x.size(at), "select: index ", index, " along dimension ", dim,
             " of shape ", x.shape());
  return squeeze(part("select", x, at, i, 1, 1), at);
}

}  // namespace peal
