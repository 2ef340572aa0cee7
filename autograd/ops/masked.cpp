// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/broadcast.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/index.h>
#include <peal/autograd/ops/masked.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/scan.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/ops/written.h>

#include <algorithm>
#include <vector>

namespace peal {
namespace {

void check_mask(std::string_view op, const Tensor& x, const Tensor& mask) {
  PEAL_CHECK(mask.dtype() == DType::boolean && mask.device() == x.device(), op,
             ": expected a mask (bool) on ", x.device(), ", got ", mask.dtype(), " ", mask.shape(),
             " on ", mask.device());
}

// Of all elements in one row, i64 [count].
Tensor places_of_true(const Tensor& mask) {
  const std::int64_t n = mask.numel();
  if (mask.device() == Device{}) {
    const bool* marked = mask.data<bool>();
    const Tensor places =
        Tensor::empty({std::count(marked, marked + n, true)}, DType::i64, Device{});
    std::int64_t* to = places.data<std::int64_t>();
    for (std::int64_t i = 0; i < n; ++i) {
      if (marked[i]) *to++ = i;
    }
    return places;
  }
  // On a device: the running count is each one's place; the others go to one past the last.
  if (n == 0) return Tensor::empty({0}, DType::i64, mask.device());
  const Tensor flat = mask.detach({n}), before = cumsum(cast(flat, DType::i64), 0);
  const std::int64_t count = before.rows(n - 1, n).item<std::int64_t>();
  const Tensor all = Tensor::empty({count + 1}, DType::i64, mask.device());
  kernels(mask.device())
      .scatter("nonzero", mask, Scatter::set, all, arange(n, DType::i64, mask.device()),
               where(flat, before - 1, count), 0);
  return all.rows(0, count);
}

// By dimension, [dimensions, count], on the CPU: line by line of the last dimension.
Tensor columns_on_host(const Tensor& mask) {
  const bool* marked = mask.data<bool>();
  const std::int64_t n = mask.numel(), count = std::count(marked, marked + n, true);
  const int last = mask.dim() - 1;
  const Tensor columns = Tensor::empty({mask.dim(), count}, DType::i64, Device{});
  std::int64_t* to = columns.data<std::int64_t>();
  const std::int64_t line = n == 0 ? 1 : mask.size(last);
  std::vector<std::int64_t> index(static_cast<std::size_t>(mask.dim()));
  std::int64_t found = 0;
  for (std::int64_t begin = 0; begin < n; begin += line) {
    const std::int64_t before = found;
    for (std::int64_t i = 0; i < line; ++i) {
      if (marked[begin + i]) to[last * count + found++] = i;
    }
    for (int d = 0; d < last; ++d) {
      std::fill(to + d * count + before, to + d * count + found,
                index[static_cast<std::size_t>(d)]);
    }
    for (int d = last - 1; d >= 0; --d) {
      if (++index[static_cast<std::size_t>(d)] < mask.size(d)) break;
      index[static_cast<std::size_t>(d)] = 0;
    }
  }
  return columns;
}

// The same on a device: each element's index along a dimension, read at the places.
Tensor columns_on_device(const Tensor& mask) {
  const Tensor places = places_of_true(mask);
  Tensors columns;
  for (int d = 0; d < mask.dim(); ++d) {
    Shape own;
    for (int i = 0; i < mask.dim(); ++i) own.push_back(i == d ? mask.size(d) : 1);
    const Tensor along = arange(mask.size(d), DType::i64, mask.device()).detach(own);
    const Tensor of_all = stretched_to("nonzero", along, mask.shape()).detach({mask.numel()});
    columns.push_back(index_select(of_all, 0, places));
  }
  return stack(columns);
}

Tensor columns_of_true(const Tensor& mask) {
  return mask.device() == Device{} ? columns_on_host(mask) : columns_on_device(mask);
}

Tensor truth_of(const Tensor& x) { return x.dtype() == DType::boolean ? x : ne(x, 0); }

}  // namespace

Tensor nonzero(const Tensor& x) {
  const OpName name("nonzero");
  TraceSpan span("nonzero");
  const Tensor mask = truth_of(x.detach());
  if (mask.dim() == 0) {
    return Tensor::empty({static_cast<bool>(mask) ? 1 : 0, 0}, DType::i64, x.device());
  }
  const Tensor columns = columns_of_true(mask);
  return mask.dim() == 1 ? reshaped(columns, {columns.size(1), 1})
                         : as_result(permute(columns, {1, 0}));
}

Tensors where(const Tensor& condition) {
  const OpName name("where");
  TraceSpan span("where");
  const Tensor mask = truth_of(condition.detach());
  const Tensor columns = columns_of_true(mask.dim() == 0 ? mask.detach({1}) : mask);
  Tensors all;
  for (int d = 0; d < columns.size(0); ++d) {
    all.push_back(columns.detach({columns.size(1)}, d * columns.size(1)));
  }
  return all;
}

Tensor masked_select(const Tensor& x, const Tensor& mask) {
  const OpName name("masked_select");
  TraceSpan span("masked_select");
  check_mask("masked_select", x, mask);
  const Shape shape = broadcast("masked_select", x.shape(), mask.shape());
  const Tensor places = places_of_true(stretched_to("masked_select", mask, shape));
  return index_select(reshaped(stretched_to("masked_select", x, shape), {shape.numel()}), 0,
                      places);
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value) {
  const OpName name("masked_fill");
  check_mask("masked_fill", x, mask);
  PEAL_CHECK(value.dim() == 0, "masked_fill: expected one value, got shape ", value.shape());
  return where(mask, cast(value.to(x.device()), x.dtype()), x);
}
Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value) {
  const OpName name("masked_fill");
  return masked_fill(x, mask, number_of("masked_fill", value, x));
}

Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source) {
  const OpName name("masked_scatter");
  TraceSpan span("masked_scatter");
  check_mask("masked_scatter", x, mask);
  check_alike("masked_scatter", x, source);
  const Shape shape = broadcast("masked_scatter", x.shape(), mask.shape());
  const Tensor whole = stretched_to("masked_scatter", x, shape);
  if (shape.numel() == 0) return whole.clone();
  const Tensor marked = stretched_to("masked_scatter", mask.detach(), shape);
  const Tensor count = cumsum(cast(marked.detach({shape.numel()}), DType::i64), 0);
  const std::int64_t wanted = count.rows(shape.numel() - 1, shape.numel()).item<std::int64_t>();
  PEAL_CHECK(wanted <= source.numel(), "masked_scatter: ", wanted,
             " are to be written, and the source of shape ", source.shape(), " has ",
             source.numel());
  if (wanted == 0) return whole.clone();
  const Tensor from = where(gt(count, 0), count - 1, 0).detach(shape);
  return where(marked, take(source, from), whole);
}

const Tensor& masked_fill_(const Tensor& x, const Tensor& mask, Scalar value) {
  write_back("masked_fill_", x, masked_fill(x, mask, value));
  return x;
}
const Tensor& masked_fill_(const Tensor& x, const Tensor& mask, const Tensor& value) {
  write_back("masked_fill_", x, masked_fill(x, mask, value));
  return x;
}
const Tensor& masked_scatter_(const Tensor& x, const Tensor& mask, const Tensor& source) {
  write_back("masked_scatter_", x, masked_scatter(x, mask, source));
  return x;
}
Tensor masked_fill_(Tensor&& x, const Tensor& mask, Scalar value) {
  return masked_fill_(static_cast<const Tensor&>(x), mask, value);
}
Tensor masked_fill_(Tensor&& x, const Tensor& mask, const Tensor& value) {
  return masked_fill_(static_cast<const Tensor&>(x), mask, value);
}
Tensor masked_scatter_(Tensor&& x, const Tensor& mask, const Tensor& source) {
  return masked_scatter_(static_cast<const Tensor&>(x), mask, source);
}

}  // namespace peal
