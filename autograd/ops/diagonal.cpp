// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/diagonal.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/in_place.h>
#include <peal/autograd/ops/promotion.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/strided.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace peal {
namespace {

// Of each element of an [m, n] matrix: by how many columns it is right of the main diagonal.
Tensor columns_right(std::int64_t m, std::int64_t n, Device device) {
  return arange(n, DType::i64, device) - unsqueeze(arange(m, DType::i64, device), 1);
}

Tensor triangle(std::string_view op, const Tensor& x, int diagonal, bool lower) {
  const OpName name(op);
  PEAL_CHECK(x.dim() >= 2, op, ": expected [..., m, n], got shape ", x.shape());
  const Tensor right = columns_right(x.size(-2), x.size(-1), x.device());
  return where(lower ? le(right, diagonal) : ge(right, diagonal), x,
               full({}, 0, x.dtype(), x.device()));
}

Tensor triangle_indices(std::string_view op, std::int64_t rows, std::int64_t columns, int offset,
                        bool lower, Device device) {
  PEAL_CHECK(rows >= 0 && columns >= 0, op, ": expected sizes, got ", rows, " and ", columns);
  std::vector<std::int64_t> at[2];
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      if (lower ? j - i > offset : j - i < offset) continue;
      at[0].push_back(i);
      at[1].push_back(j);
    }
  }
  const auto count = std::ssize(at[0]);
  at[0].insert(at[0].end(), at[1].begin(), at[1].end());
  return Tensor::from(at[0], {2, count}, device);
}

// Where the diagonal of two dimensions of a dense array lies: the others in order, and it as last.
struct Line {
  Shape shape;
  Steps steps{};
  std::int64_t at = 0;
};
Line line_of(const Shape& whole, int offset, int first, int second) {
  const Steps dense = steps_of_dense(whole);
  Line line;
  const auto put = [&](std::int64_t size, std::int64_t step) {
    line.shape.push_back(size);
    line.steps[static_cast<std::size_t>(line.shape.dim() - 1)] = step;
  };
  for (int i = 0; i < whole.dim(); ++i) {
    if (i != first && i != second) put(whole[i], dense[static_cast<std::size_t>(i)]);
  }
  const std::int64_t down = dense[static_cast<std::size_t>(first)],
                     right = dense[static_cast<std::size_t>(second)];
  const std::int64_t rows = whole[first] + std::min(offset, 0),
                     columns = whole[second] - std::max(offset, 0);
  put(std::max<std::int64_t>(0, std::min(rows, columns)), down + right);
  if (line.shape.numel() > 0) line.at = offset >= 0 ? offset * right : -offset * down;
  return line;
}

// Those of no dimensions count where no other is of their category.
DType type_of_all(const Tensors& tensors) {
  std::optional<DType> kinds[2];
  for (const Tensor& each : tensors) {
    std::optional<DType>& kind = kinds[each.dim() == 0 ? 0 : 1];
    kind = kind ? promote_types(*kind, each.dtype()) : each.dtype();
  }
  if (!kinds[0] || !kinds[1]) return kinds[0] ? *kinds[0] : *kinds[1];
  return result_type(Tensor::empty({}, *kinds[0]), Tensor::empty({0}, *kinds[1]));
}

}  // namespace

Tensor tril(const Tensor& x, int diagonal) { return triangle("tril", x, diagonal, true); }
Tensor triu(const Tensor& x, int diagonal) { return triangle("triu", x, diagonal, false); }
Tensor tril_indices(std::int64_t rows, std::int64_t columns, int offset, Device device) {
  return triangle_indices("tril_indices", rows, columns, offset, true, device);
}
Tensor triu_indices(std::int64_t rows, std::int64_t columns, int offset, Device device) {
  return triangle_indices("triu_indices", rows, columns, offset, false, device);
}

Tensor diagonal(const Tensor& x, int offset, int dim1, int dim2) {
  const OpName name("diagonal");
  TraceSpan span("diagonal");
  const int first = checked_dim("diagonal", x, dim1), second = checked_dim("diagonal", x, dim2);
  PEAL_CHECK(first != second, "diagonal: dimension ", dim1, " of shape ", x.shape(),
             " is named twice");
  const Line line = line_of(x.shape(), offset, first, second);
  return part_for_caller(part_of("diagonal", x, line.shape, line.steps, line.at), x);
}

Tensor diag_embed(const Tensor& x, int offset, int dim1, int dim2) {
  const OpName name("diag_embed");
  TraceSpan span("diag_embed");
  PEAL_CHECK(x.dim() >= 1, "diag_embed: expected a diagonal [..., n], got shape ", x.shape());
  const int dims = x.dim() + 1;
  const auto at = [&](int dim) {
    const int d = dim < 0 ? dim + dims : dim;
    PEAL_CHECK(d >= 0 && d < dims, "diag_embed: dimension ", dim, " of a result of ", dims,
               " dimensions");
    return d;
  };
  const int first = at(dim1), second = at(dim2);
  PEAL_CHECK(first != second, "diag_embed: dimension ", dim1, " is named twice");
  const std::int64_t side = x.size(-1) + (offset < 0 ? -offset : offset);
  Shape whole;
  for (int i = 0, next = 0; i < dims; ++i) {
    whole.push_back(i == first || i == second ? side : x.size(next++));
  }
  const Line line = line_of(whole, offset, first, second);
  return zeros_but("diag_embed", x, whole, line.steps, line.at);
}

Tensor diag(const Tensor& x, int diagonal) {
  PEAL_CHECK(x.dim() == 1 || x.dim() == 2, "diag: expected [n] or a matrix, got shape ", x.shape());
  return x.dim() == 1 ? diag_embed(x, diagonal) : peal::diagonal(x, diagonal);
}

Tensor trace(const Tensor& x) {
  const OpName name("trace");
  PEAL_CHECK(x.dim() == 2, "trace: expected a matrix, got shape ", x.shape());
  return sum(diagonal(x));
}

Tensor block_diag(const Tensors& tensors) {
  const OpName name("block_diag");
  TraceSpan span("block_diag");
  if (tensors.empty()) return zeros({1, 0});
  const DType dtype = type_of_all(tensors);
  Tensors blocks;
  std::int64_t columns = 0;
  for (const Tensor& each : tensors) {
    PEAL_CHECK(each.dim() <= 2, "block_diag: expected at most two dimensions, got shape ",
               each.shape(), " of tensor ", blocks.size());
    const Tensor of = cast(each, dtype);
    blocks.push_back(of.dim() == 2 ? of : reshaped(of, {1, of.numel()}));
    columns += blocks.back().size(1);
  }
  Tensors rows;
  std::int64_t before = 0;
  for (const Tensor& block : blocks) {
    const std::int64_t m = block.size(0), after = columns - before - block.size(1);
    rows.push_back(cat({zeros({m, before}, dtype, block.device()), block,
                        zeros({m, after}, dtype, block.device())},
                       1));
    before += block.size(1);
  }
  return cat(rows);
}

const Tensor& fill_diagonal_(const Tensor& x, Scalar value, bool wrap) {
  const OpName name("fill_diagonal_");
  PEAL_CHECK(x.dim() >= 2, "fill_diagonal_: expected at least two dimensions, got shape ",
             x.shape());
  std::int64_t step = 0, count = x.size(0);
  for (int i = 0; i < x.dim(); ++i) {
    PEAL_CHECK(x.dim() == 2 || x.size(i) == x.size(0), "fill_diagonal_: expected a matrix, or ",
               "dimensions of one size, got shape ", x.shape());
    step += steps_of_dense(x.shape())[static_cast<std::size_t>(i)];
    count = std::min(count, x.size(i));
  }
  if (wrap && x.dim() == 2 && x.size(0) > x.size(1)) count = (x.numel() + step - 1) / step;
  const Tensor values = empty({count}, x.dtype(), x.device());
  fill_(values, value);
  write_back("fill_diagonal_", x, with_part("fill_diagonal_", x, values, {step}, 0));
  return x;
}
Tensor fill_diagonal_(Tensor&& x, Scalar value, bool wrap) {
  return fill_diagonal_(static_cast<const Tensor&>(x), value, wrap);
}

}  // namespace peal
