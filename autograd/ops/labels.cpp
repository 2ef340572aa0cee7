// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/labels.h>
#include <peal/autograd/ops/matmul.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/strided.h>

#include <algorithm>
#include <numeric>

namespace peal {
namespace {

bool has(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}
// Which dimension has the label.
int place_of(const Labels& labels, int label) {
  return static_cast<int>(std::find(labels.begin(), labels.end(), label) - labels.begin());
}
std::int64_t size_of(const Labelled& operand, int label) {
  return operand.x.size(place_of(operand.labels, label));
}
std::int64_t size_of(const Labelled& operand, const Labels& labels) {
  std::int64_t size = 1;
  for (const int label : labels) size *= size_of(operand, label);
  return size;
}
Labels joined(Labels first, const Labels& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// Without those of size 1 that meet another size in `other`, to which they stretch.
Labelled without_stretched(const Labelled& operand, const Labelled& other) {
  Labelled rest;
  Shape shape;
  for (const int label : operand.labels) {
    const std::int64_t size = size_of(operand, label);
    if (size == 1 && has(other.labels, label) && size_of(other, label) != 1) continue;
    rest.labels.push_back(label);
    shape.push_back(size);
  }
  rest.x = reshaped(operand.x, shape);
  return rest;
}

// In this order, with a size of 1 for each label that the operand has not.
Tensor among(const Labelled& operand, const Labels& order) {
  Labels own;
  Shape shape;
  for (const int label : order) {
    const bool there = has(operand.labels, label);
    if (there) own.push_back(label);
    shape.push_back(there ? size_of(operand, label) : 1);
  }
  return reshaped(ordered(operand, own), shape);
}

// Matrices of rows and columns, each of several dimensions, or the same transposed where they lie
// so: [batch, rows, columns], without the batch where it has no labels.
struct Matrices {
  Tensor x;
  bool transposed;
};
Matrices matrices_of(const Labelled& operand, const Labels& batch, const Labels& rows,
                     const Labels& columns) {
  const bool transposed = operand.labels == joined(joined(batch, columns), rows);
  const Labels &first = transposed ? columns : rows, &second = transposed ? rows : columns;
  Shape shape;
  if (!batch.empty()) shape.push_back(size_of(operand, batch));
  shape.push_back(size_of(operand, first));
  shape.push_back(size_of(operand, second));
  return {reshaped(ordered(operand, joined(joined(batch, first), second)), shape), transposed};
}

}  // namespace

Labelled diagonals_of(std::string_view op, const Labelled& operand) {
  const Steps dense = steps_of_dense(operand.x.shape());
  Labelled result;
  Shape shape;
  Steps steps{};
  for (int i = 0; i < operand.x.dim(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const int label = operand.labels[at], known = place_of(result.labels, label);
    if (!has(result.labels, label)) {
      result.labels.push_back(label);
      shape.push_back(operand.x.size(i));
    }
    PEAL_CHECK(shape[known] == operand.x.size(i), op, ": a diagonal of dimensions of ",
               shape[known], " and ", operand.x.size(i), " in shape ", operand.x.shape());
    steps[static_cast<std::size_t>(known)] += dense[at];
  }
  result.x = shape.dim() == operand.x.dim() ? operand.x : part_of(op, operand.x, shape, steps, 0);
  return result;
}

Tensor ordered(const Labelled& operand, const Labels& order) {
  if (operand.labels == order) return operand.x;
  std::vector<int> dims;
  for (const int label : order) dims.push_back(place_of(operand.labels, label));
  return permute(operand.x, dims);
}

Labelled summed_but(const Labelled& operand, const Labels& kept) {
  Labelled rest;
  std::vector<int> gone;
  for (const int label : operand.labels) {
    if (has(kept, label)) {
      rest.labels.push_back(label);
    } else {
      gone.push_back(place_of(operand.labels, label));
    }
  }
  // Of i32 and the like sum() is i64.
  rest.x = gone.empty() ? operand.x : cast(sum(operand.x, gone), operand.x.dtype());
  return rest;
}

Labelled contracted(Labelled a, Labelled b, const Labels& kept) {
  a = without_stretched(a, b);
  b = without_stretched(b, a);
  a = summed_but(a, joined(kept, b.labels));
  b = summed_but(b, joined(kept, a.labels));
  Labels batch, left, right, sums;
  for (const int label : a.labels) {
    (!has(b.labels, label) ? left : has(kept, label) ? batch : sums).push_back(label);
  }
  for (const int label : b.labels) {
    if (!has(a.labels, label)) right.push_back(label);
  }
  const Labels result = joined(joined(batch, left), right);
  // Where there is nothing to sum over, or each matrix would be one number.
  const bool dots = left.empty() && right.empty() && !batch.empty();
  if (sums.empty() || dots) {
    const Labels all = joined(result, sums);
    const DType dtype = a.x.dtype(), within = sums.empty() ? dtype : computed_in(dtype);
    Labelled product{cast(among(a, all), within) * cast(among(b, all), within), all};
    product = summed_but(product, result);
    product.x = cast(product.x, dtype);
    return product;
  }
  Shape shape;
  for (const int label : result) shape.push_back(size_of(has(a.labels, label) ? a : b, label));
  const Matrices first = matrices_of(a, batch, left, sums);
  const Matrices second = matrices_of(b, batch, sums, right);
  return {reshaped(matmul(first.x, second.x, first.transposed, second.transposed), shape), result};
}

}  // namespace peal
