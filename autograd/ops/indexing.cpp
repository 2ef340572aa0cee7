// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/chosen.h>
#include <peal/autograd/ops/in_place.h>
#include <peal/autograd/ops/indexing.h>
#include <peal/autograd/ops/masked.h>
#include <peal/autograd/ops/operands.h>
#include <peal/autograd/ops/promotion.h>
#include <peal/autograd/ops/strided.h>

#include <algorithm>

namespace peal {
namespace {

// Integer indices on the CPU, counted from the front.
Tensor from_front(const Tensor& index, std::int64_t size, const Shape& whole) {
  Tensor at = cast(index.detach().to(Device{}), DType::i64);
  if (at.same_as(index) || at.storage() == index.storage()) at = at.clone();
  std::int64_t* i = at.data<std::int64_t>();
  for (std::int64_t n = 0; n < at.numel(); ++n) {
    PEAL_CHECK(i[n] >= -size && i[n] < size, "x[...]: index ", i[n],
               " is outside of a dimension of ", size, " of shape ", whole);
    if (i[n] < 0) i[n] += size;
  }
  return at;
}

// How many dimensions of x an index takes.
int taken_by(const Index& index) {
  const Tensor* tensor = std::get_if<Tensor>(&index.value());
  if (tensor == nullptr)
    return std::holds_alternative<NoneIndex>(index.value()) ||
                   std::holds_alternative<EllipsisIndex>(index.value())
               ? 0
               : 1;
  return tensor->dtype() == DType::boolean ? tensor->dim() : 1;
}

}  // namespace

Indexed::Indexed(const Tensor& x, const Region& whole, std::span<const Index> index) : x_(x) {
  const OpName name("x[...]");
  int taken = 0, ellipses = 0;
  for (const Index& each : index) {
    taken += taken_by(each);
    ellipses += std::holds_alternative<EllipsisIndex>(each.value());
  }
  PEAL_CHECK(ellipses <= 1, "x[...]: at most one Ellipsis, got ", ellipses);
  PEAL_CHECK(taken <= whole.shape.dim(), "x[...]: ", taken, " indices for shape ", whole.shape);
  region_.at = whole.at;
  int dim = 0;
  const auto put = [&](std::int64_t size, std::int64_t step, const Tensor& pick) {
    region_.shape.push_back(size);
    region_.steps[static_cast<std::size_t>(region_.shape.dim() - 1)] = step;
    picks_.push_back(pick);
    by_tensors_ = by_tensors_ || pick.defined();
  };
  const auto step_of = [&](int d) { return whole.steps[static_cast<std::size_t>(d)]; };
  const auto keep = [&](int dims) {
    for (; dims > 0; --dims, ++dim) put(whole.shape[dim], step_of(dim), {});
  };
  const auto one = [&](std::int64_t i) {
    const std::int64_t size = whole.shape[dim];
    PEAL_CHECK(i >= -size && i < size, "x[...]: index ", i, " is outside of dimension ", dim,
               " of shape ", whole.shape);
    region_.at += (i < 0 ? i + size : i) * step_of(dim++);
  };
  for (const Index& each : index) {
    if (const auto* i = std::get_if<std::int64_t>(&each.value())) {
      one(*i);
    } else if (const auto* slice = std::get_if<Slice>(&each.value())) {
      PEAL_CHECK(slice->step >= 1, "x[...]: a step must be at least 1, got ", slice->step);
      const std::int64_t size = whole.shape[dim];
      const auto within = [size](std::int64_t i) {
        return std::clamp<std::int64_t>(i < 0 ? i + size : i, 0, size);
      };
      const std::int64_t first = within(slice->start.value_or(0)),
                         last = std::max(first, within(slice->stop.value_or(size)));
      region_.at += first * step_of(dim);
      put((last - first + slice->step - 1) / slice->step, slice->step * step_of(dim), {});
      ++dim;
    } else if (std::holds_alternative<NoneIndex>(each.value())) {
      put(1, 0, {});
    } else if (std::holds_alternative<EllipsisIndex>(each.value())) {
      keep(whole.shape.dim() - taken);
    } else {
      const Tensor& tensor = std::get<Tensor>(each.value());
      PEAL_CHECK(!is_floating(tensor.dtype()), "x[...]: expected integers or a mask (bool), got ",
                 tensor.dtype(), " ", tensor.shape());
      PEAL_CHECK(tensor.dtype() != DType::u8, "x[...]: u8 ", tensor.shape(),
                 " is a mask to some and numbers of rows to others; cast it to bool or to i64");
      if (tensor.dtype() == DType::boolean) {
        PEAL_CHECK(tensor.dim() > 0, "x[...]: a mask of no dimensions; where() takes one");
        for (int i = 0; i < tensor.dim(); ++i) {
          PEAL_CHECK(tensor.size(i) == whole.shape[dim + i], "x[...]: a mask of shape ",
                     tensor.shape(), " at dimension ", dim, " of shape ", whole.shape);
        }
        for (const Tensor& along : peal::where(tensor.detach().to(Device{}))) {
          put(whole.shape[dim], step_of(dim), along);
          ++dim;
        }
      } else if (tensor.dim() == 0) {
        one(tensor.item<std::int64_t>());
      } else {
        put(whole.shape[dim], step_of(dim), from_front(tensor, whole.shape[dim], whole.shape));
        ++dim;
      }
    }
  }
  keep(whole.shape.dim() - dim);
}

Tensor Indexed::get() const {
  TraceSpan span("index");
  const Tensor part = part_of("index", x_, region_.shape, region_.steps, region_.at);
  return by_tensors_ ? chosen_from(part, picks_) : part_for_caller(part, x_);
}

void Indexed::write(const Tensor& values, bool accumulate) const {
  constexpr std::string_view op = "x[...] = y";
  const Shape shape = by_tensors_ ? chosen_shape(region_.shape, picks_) : region_.shape;
  const Tensor fit = cast(fitted(values, shape), x_.dtype());
  if (write_is_recorded(op, x_, values)) {
    Tensor part = by_tensors_ ? part_of("index", x_, region_.shape, region_.steps, region_.at)
                              : stretched_to("index", fit, region_.shape);
    if (by_tensors_ && accumulate) part = with_added(part, picks_, fit);
    if (by_tensors_ && !accumulate) part = with_chosen(part, picks_, fit);
    return write_back(op, x_, with_part("index_put", x_, part, region_.steps, region_.at));
  }
  const Tensor source = fit.storage() == x_.storage() ? fit.clone() : fit;
  if (by_tensors_) {
    write_chosen(x_, region_.shape, region_.steps, region_.at, picks_, source, accumulate);
  } else if (in_one_piece(region_.shape, region_.steps)) {
    // The part is read from the values, which stretch.
    const Tensor part = x_.detach(region_.shape, region_.shape.numel() == 0 ? 0 : region_.at);
    kernels(x_.device())
        .read_strided("index_put", x_, part, source,
                      steps_of_stretched(source.shape(), region_.shape), 0);
  } else {
    kernels(x_.device())
        .write_strided("index_put", x_, x_, stretched_to("index", source, region_.shape),
                       region_.steps, region_.at);
  }
  x_.storage()->bump_version();
}

const Indexed& Indexed::store(const Tensor& values, bool accumulate) const {
  TraceSpan span("index_put");
  PEAL_CHECK(values.device() == x_.device() || values.numel() == 1, "x[...] = y: x is on ",
             x_.device(), ", and y on ", values.device());
  PEAL_CHECK(!of_copy_,
             "x[...][...] = y: what tensors choose is a copy, and y would be lost; put all "
             "indices into one x[{...}]");
  write(values.to(x_.device()), accumulate);
  return *this;
}

const Indexed& Indexed::store(Scalar value) const {
  if (x_.dtype() == DType::boolean) value = value.to<bool>();
  // Cast, as a tensor's elements are.
  const bool cut = value.is_floating() && !is_floating(x_.dtype());
  return store(number("x[...] = y", value, cut ? DType::f64 : x_.dtype(), x_.device()));
}

#define ASSIGNMENT(op, of)                                                          \
  const Indexed& Indexed::operator op##=(const Tensor& y) const {                   \
    const Tensor r = get() op y;                                                    \
    PEAL_CHECK(can_cast(r.dtype(), x_.dtype()), #op "=: the result is ", r.dtype(), \
               ", and is written into ", x_.dtype(), "; cast an operand");          \
    return store(r);                                                                \
  }                                                                                 \
  const Indexed& Indexed::operator op##=(Scalar y) const {                          \
    const Tensor r = get() op y;                                                    \
    PEAL_CHECK(can_cast(r.dtype(), x_.dtype()), #op "=: the result is ", r.dtype(), \
               ", and is written into ", x_.dtype(), "; cast an operand");          \
    return store(r);                                                                \
  }
ASSIGNMENT(+, add)
ASSIGNMENT(-, sub)
ASSIGNMENT(*, mul)
ASSIGNMENT(/, div)
#undef ASSIGNMENT

Indexed Indexed::part(std::span<const Index> index) const {
  if (!by_tensors_) {
    Indexed part(x_, region_, index);
    part.of_copy_ = of_copy_;
    return part;
  }
  const Tensor copy = get();
  Indexed part(copy, {copy.shape(), steps_of_dense(copy.shape()), 0}, index);
  part.of_copy_ = true;
  return part;
}

Indexed Indexed::operator[](const Index& index) const { return part({&index, 1}); }

Indexed Indexed::operator[](std::initializer_list<Index> index) const {
  return part({index.begin(), index.size()});
}

Indexed Tensor::operator[](const Index& index) const {
  return Indexed(*this, {shape(), steps_of_dense(shape()), 0}, {&index, 1});
}

Indexed Tensor::operator[](std::initializer_list<Index> index) const {
  return Indexed(*this, {shape(), steps_of_dense(shape()), 0}, {index.begin(), index.size()});
}

const Tensor Tensor::index(std::initializer_list<Index> index) const {
  return (*this)[index].get();
}

void Indexed::put(const Tensor& values, bool accumulate) const {
  if (accumulate && !by_tensors_) {
    *this += values;
  } else {
    store(values, accumulate);
  }
}

const Tensor& index_put_(const Tensor& x, std::initializer_list<Index> index, const Tensor& values,
                         bool accumulate) {
  x[index].put(values, accumulate);
  return x;
}

Tensor index_put(const Tensor& x, std::initializer_list<Index> index, const Tensor& values,
                 bool accumulate) {
  const Tensor y = x.clone();
  return index_put_(y, index, values, accumulate);
}

const Tensor& Tensor::index_put_(std::initializer_list<Index> index, const Tensor& values) const {
  (*this)[index] = values;
  return *this;
}

const Tensor& Tensor::index_put_(std::initializer_list<Index> index, Scalar value) const {
  (*this)[index] = value;
  return *this;
}

}  // namespace peal
