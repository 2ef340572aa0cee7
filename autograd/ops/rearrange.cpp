// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/rearrange.h>
#include <peal/autograd/ops/strided.h>

#include <algorithm>

namespace peal {
namespace {

// A copy, in whatever order x is read.
Tensor turned(std::string_view op, const Tensor& x, const Shape& shape, const Steps& steps,
              std::int64_t at) {
  const Tensor y = part_of(op, x, shape, steps, x.numel() == 0 ? 0 : at);
  return y.storage() == x.storage() ? y.clone() : y;
}

}  // namespace

Tensor movedim(const Tensor& x, const std::vector<int>& source,
               const std::vector<int>& destination) {
  const OpName name("movedim");
  PEAL_CHECK(source.size() == destination.size(), "movedim: ", source.size(),
             " dimensions cannot move to ", destination.size(), " places");
  std::vector<int> order(static_cast<std::size_t>(x.dim()), -1);
  std::vector<bool> moved(order.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    const auto from = static_cast<std::size_t>(checked_dim("movedim", x, source[i]));
    const auto to = static_cast<std::size_t>(checked_dim("movedim", x, destination[i]));
    PEAL_CHECK(!moved[from] && order[to] < 0, "movedim: dimension ", source[i], " or place ",
               destination[i], " of shape ", x.shape(), " is named twice");
    moved[from] = true;
    order[to] = static_cast<int>(from);
  }
  int next = 0;
  for (int& from : order) {
    if (from >= 0) continue;
    while (moved[static_cast<std::size_t>(next)]) ++next;
    from = next++;
  }
  return std::is_sorted(order.begin(), order.end()) ? x : permute(x, order);
}

Tensor movedim(const Tensor& x, int source, int destination) {
  return movedim(x, std::vector<int>{source}, std::vector<int>{destination});
}

Tensor swapaxes(const Tensor& x, int axis0, int axis1) { return transpose(x, axis0, axis1); }

Tensor t(const Tensor& x) {
  PEAL_CHECK(x.dim() <= 2, "t: expected at most two dimensions, got shape ", x.shape(),
             "; transpose(x, -2, -1) turns the last two");
  return x.dim() < 2 ? x : transpose(x, 0, 1);
}

Tensor flip(const Tensor& x, const std::vector<int>& dims) {
  const OpName name("flip");
  Steps steps = steps_of_dense(x.shape());
  std::int64_t at = 0;
  for (const int dim : dims) {
    const int d = checked_dim("flip", x, dim);
    std::int64_t& step = steps[static_cast<std::size_t>(d)];
    PEAL_CHECK(step >= 0, "flip: dimension ", dim, " of shape ", x.shape(), " is named twice");
    if (x.size(d) > 1) at += (x.size(d) - 1) * step;
    step = -step;
  }
  return turned("flip", x, x.shape(), steps, at);
}

Tensor flip(const Tensor& x, int dim) { return flip(x, std::vector<int>{dim}); }
Tensor fliplr(const Tensor& x) { return flip(x, 1); }
Tensor flipud(const Tensor& x) { return flip(x, 0); }

Tensor rot90(const Tensor& x, std::int64_t k, const std::vector<int>& dims) {
  const OpName name("rot90");
  PEAL_CHECK(dims.size() == 2 && x.dim() >= 2, "rot90: expected two dimensions of at least two, ",
             "got ", dims.size(), " of shape ", x.shape());
  const int first = checked_dim("rot90", x, dims[0]), second = checked_dim("rot90", x, dims[1]);
  PEAL_CHECK(first != second, "rot90: dimension ", dims[0], " of shape ", x.shape(),
             " is named twice");
  const std::int64_t turns = (k % 4 + 4) % 4;
  if (turns == 0) return x.clone();
  if (turns == 2) return flip(x, {first, second});
  Shape shape = x.shape();
  std::swap(shape[first], shape[second]);
  Steps steps = steps_of_dense(x.shape());
  std::swap(steps[static_cast<std::size_t>(first)], steps[static_cast<std::size_t>(second)]);
  // What was the last comes first.
  const int back = turns == 1 ? first : second;
  std::int64_t& step = steps[static_cast<std::size_t>(back)];
  const std::int64_t at = (shape[back] - 1) * step;
  step = -step;
  return turned("rot90", x, shape, steps, at);
}

Tensor roll(const Tensor& x, std::int64_t shift, int dim) {
  const OpName name("roll");
  const int at = checked_dim("roll", x, dim);
  const std::int64_t size = x.size(at), by = size == 0 ? 0 : (shift % size + size) % size;
  if (by == 0) return x.clone();
  return cat({narrow(x, at, size - by, by), narrow(x, at, 0, size - by)}, at);
}

Tensor roll(const Tensor& x, std::int64_t shift) {
  return reshaped(roll(reshaped(x, {x.numel()}), shift, 0), x.shape());
}

Tensor roll(const Tensor& x, const std::vector<std::int64_t>& shifts,
            const std::vector<int>& dims) {
  PEAL_CHECK(shifts.size() == dims.size(), "roll: ", shifts.size(), " shifts for ", dims.size(),
             " dimensions");
  Tensor y = x;
  for (std::size_t i = 0; i < dims.size(); ++i) y = roll(y, shifts[i], dims[i]);
  return y;
}

}  // namespace peal
