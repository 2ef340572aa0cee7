// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/broadcast.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/index.h>
#include <peal/autograd/ops/indices.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/tape.h>

#include <cstdint>
#include <limits>

namespace peal {
namespace {

constexpr std::int64_t no_index = std::numeric_limits<std::int64_t>::min();  // none is ignored

}  // namespace

void check_index(std::string_view op, const Tensor& x, int dim, const Tensor& index) {
  PEAL_CHECK(index.dtype() == DType::i64 && index.device() == x.device(), op,
             ": expected an i64 index on ", x.device(), ", got ", index.dtype(), " ", index.shape(),
             " on ", index.device());
  if (x.device().type != DeviceType::cpu) {
    kernels(x.device()).check_indices(op, index, {}, index, x.size(dim), no_index);
    return;
  }
  const std::int64_t* at = index.data<std::int64_t>();
  const std::int64_t count = index.numel(), size = x.size(dim);
  std::uint64_t outside = 0;  // in its highest bit
  for (std::int64_t i = 0; i < count; ++i) {
    const auto place = static_cast<std::uint64_t>(at[i]);
    outside |= place | (static_cast<std::uint64_t>(size) - 1 - place);
  }
  if (outside >> 63 == 0) return;
  for (std::int64_t i = 0; i < count; ++i) {
    PEAL_CHECK(at[i] >= 0 && at[i] < size, op, ": index ", at[i], " is outside of dimension ", dim,
               " of shape ", x.shape());
  }
}

namespace {

// x's slices at the index, flat, along dim. `untrained`: an index along dim 0 that gets no
// gradient, or -1.
Tensor picked(std::string_view op, const Tensor& x, int dim, const Tensor& index,
              std::int64_t untrained, const Shape& shape);

// The opposite: zeros, to which g's slices are added.
Tensor added(std::string_view op, const Tensor& g, int dim, const Saved& index, const Shape& whole,
             std::int64_t untrained) {
  const OpName name(op);
  Tensor dx = Tensor::zeros(whole, g.dtype(), g.device());
  kernels(g.device()).index_add(op, g, dx, g, index(), dim);
  if (untrained >= 0) dx.rows(untrained, untrained + 1).zero_();
  return record(op, dx, {g}, [op, dim, index, untrained, part = g.shape()](const Tensor& gg) {
    const Tensor slices = picked(op, gg, dim, index(), untrained, part);
    if (untrained < 0) return slices;
    const Tensor flat = index().detach({part[0]});
    const Tensor trained = cast(ne(flat, untrained), gg.dtype());
    return slices * unsqueeze(trained, 1);
  });
}

Tensor picked(std::string_view op, const Tensor& x, int dim, const Tensor& index,
              std::int64_t untrained, const Shape& shape) {
  const OpName name(op);
  Shape slices = x.shape();
  slices[dim] = index.numel();
  const Tensor out = Tensor::empty(slices, x.dtype(), x.device());
  kernels(x.device()).index_select(op, x, out, x, index, dim);
  return record(
      op, out.detach(shape), {x},
      [op, dim, index = save(index), whole = x.shape(), slices, untrained](const Tensor& g) {
        return added(op, reshaped(g, slices), dim, index, whole, untrained);
      });
}

// Like x, zeros, to whose elements at the index g's are added.
Tensor scattered(const Tensor& g, int dim, const Saved& index, const Shape& whole) {
  const OpName name("gather");
  Tensor dx = Tensor::zeros(whole, g.dtype(), g.device());
  kernels(g.device()).scatter_add("gather", g, dx, g, index(), dim);
  return record("gather", dx, {g},
                [dim, index](const Tensor& gg) { return gathered(gg, dim, index()); });
}

}  // namespace

Tensor gathered(const Tensor& x, int dim, const Tensor& index) {
  const OpName name("gather");
  Tensor out = Tensor::empty(index.shape(), x.dtype(), x.device());
  kernels(x.device()).gather("gather", x, out, x, index, dim);
  return record("gather", out, {x}, [dim, index = save(index), whole = x.shape()](const Tensor& g) {
    return scattered(g, dim, index, whole);
  });
}

Tensor index_select(const Tensor& x, int dim, const Tensor& index) {
  TraceSpan span("index_select");
  const int at = checked_dim("index_select", x, dim);
  PEAL_CHECK(index.dim() == 1, "index_select: expected an index [n], got shape ", index.shape());
  check_index("index_select", x, at, index);
  Shape shape = x.shape();
  shape[at] = index.numel();
  return picked("index_select", x, at, index, -1, shape);
}

Tensor embedding(const Tensor& index, const Tensor& weight,
                 std::optional<std::int64_t> padding_idx) {
  TraceSpan span("embedding");
  PEAL_CHECK(weight.dim() == 2, "embedding: expected a weight [count, width], got shape ",
             weight.shape());
  check_index("embedding", weight, 0, index);
  std::int64_t untrained = -1;
  if (padding_idx) {
    untrained = *padding_idx < 0 ? *padding_idx + weight.size(0) : *padding_idx;
    PEAL_CHECK(untrained >= 0 && untrained < weight.size(0), "embedding: padding_idx ",
               *padding_idx, " is outside of a weight of shape ", weight.shape());
  }
  Shape shape = index.shape();
  shape.push_back(weight.size(1));
  return picked("embedding", weight, 0, index, untrained, shape);
}

Tensor gather(const Tensor& x, int dim, const Tensor& index) {
  TraceSpan span("gather");
  const OpName name("gather");
  if (x.dim() == 0 && index.dim() <= 1) {
    return reshaped(gather(reshaped(x, {1}), dim, reshaped(index, {index.numel()})), index.shape());
  }
  const int at = checked_dim("gather", x, dim);
  bool fits = index.dim() == x.dim(), whole = true;
  for (int i = 0; fits && i < x.dim(); ++i) {
    if (i == at) continue;
    fits = index.size(i) <= x.size(i);
    whole = whole && index.size(i) == x.size(i);
  }
  PEAL_CHECK(fits, "gather: an index of shape ", index.shape(), " is larger than shape ", x.shape(),
             " elsewhere than in dimension ", dim);
  check_index("gather", x, at, index);
  if (whole) return gathered(x, at, index);
  Shape part = index.shape();
  part[at] = x.size(at);
  return gathered(part_of("gather", x, part, steps_of_dense(x.shape()), 0), at, index);
}

Tensor take_along_dim(const Tensor& x, const Tensor& index, std::optional<int> dim) {
  const OpName name("take_along_dim");
  if (!dim) return take_along_dim(reshaped(x, {x.numel()}), reshaped(index, {index.numel()}), 0);
  const int at = checked_dim("take_along_dim", x, *dim);
  PEAL_CHECK(index.dim() == x.dim(), "take_along_dim: expected an index of ", x.dim(),
             " dimensions for shape ", x.shape(), ", got ", index.shape());
  Shape from = x.shape(), by = index.shape();
  from[at] = by[at] = 1;
  const Shape both = broadcast("take_along_dim", from, by);
  from = by = both;
  from[at] = x.size(at);
  by[at] = index.size(at);
  return gather(stretched_to("take_along_dim", x, from), at,
                stretched_to("take_along_dim", index, by));
}

Tensor take(const Tensor& x, const Tensor& index) {
  const OpName name("take");
  PEAL_CHECK(index.dtype() == DType::i64, "take: expected an i64 index, got ", index.dtype(), " ",
             index.shape());
  const Tensor from_front = where(lt(index, 0), index + x.numel(), index);
  const Tensor flat = reshaped(x, {x.numel()});
  check_index("take", flat, 0, from_front);
  return picked("take", flat, 0, from_front, -1, index.shape());
}

Tensor one_hot(const Tensor& index, std::int64_t num_classes) {
  const OpName name("one_hot");
  TraceSpan span("one_hot");
  PEAL_CHECK(index.dtype() == DType::i64, "one_hot: expected i64 classes, got ", index.dtype(), " ",
             index.shape());
  std::int64_t classes = num_classes;
  if (classes < 0) {
    PEAL_CHECK(index.numel() > 0, "one_hot: no classes to count in shape ", index.shape(),
               "; say num_classes");
    classes = max(index).item<std::int64_t>() + 1;
  }
  const Tensor names = arange(classes, DType::i64, index.device());
  check_index("one_hot", names, 0, index);
  return cast(eq(unsqueeze(index, -1), names), DType::i64);
}

}  // namespace peal
