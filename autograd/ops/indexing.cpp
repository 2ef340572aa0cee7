// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/geometry.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/broadcast.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/in_place.h>
#include <peal/autograd/ops/index.h>
#include <peal/autograd/ops/indexing.h>
#include <peal/autograd/ops/operands.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/promotion.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/tape.h>

#include <algorithm>

namespace peal {
namespace {

using Offsets = std::vector<std::int64_t>;

// x stretched to the shape, of any type. Recorded.
Tensor stretched_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  const OpName name("index");
  const Steps dense = steps_of_dense(x.shape());
  Steps steps{};
  for (int i = 1; i <= x.dim(); ++i) {
    if (x.size(-i) == 1) continue;
    steps[static_cast<std::size_t>(shape.dim() - i)] = dense[static_cast<std::size_t>(x.dim() - i)];
  }
  const Tensor out = Tensor::empty(shape, x.dtype(), x.device());
  kernels(x.device()).read_strided("index", x, out, x, steps, 0);
  return record("index", out, {x}, [part = x.shape()](const Tensor& g) { return sum_to(g, part); });
}

// Values as they are written into a part of this shape: more dimensions than it has must be 1.
Tensor fitted(const Tensor& values, const Shape& shape, DType dtype) {
  Tensor fit = values;
  while (fit.dim() > shape.dim() && fit.size(0) == 1) fit = squeeze(fit, 0);
  bool fits = fit.dim() <= shape.dim();
  for (int i = 1; fits && i <= fit.dim(); ++i)
    fits = fit.size(-i) == 1 || fit.size(-i) == shape[-i];
  PEAL_CHECK(fits, "x[...] = y: a part of shape ", shape, " cannot take values of shape ",
             values.shape());
  return stretched_to(cast(fit, dtype), shape);
}

// x with these values at a part of it. Recorded.
Tensor with_part(const Tensor& x, const Tensor& values, const Steps& steps, std::int64_t at) {
  const OpName name("index_put");
  const Tensor out = x.detach().clone();
  kernels(x.device()).write_strided("index_put", out, out, values, steps, at);
  return record("index_put", out, {x, values},
                [part = values.shape(), steps, at](const Tensor& g, Needs needs) {
                  Tensors grads(2);
                  if (needs[0]) {
                    grads[0] = with_part(g, Tensor::zeros(part, g.dtype(), g.device()), steps, at);
                  }
                  if (needs[1]) grads[1] = part_of("index_put", g, part, steps, at);
                  return grads;
                });
}

// Where the mask is true, by dimension.
Tensors places_of(const Tensor& mask) {
  const std::vector<bool> marked = [&] {
    const Tensor here = mask.detach().to(Device{});
    const bool* from = here.data<bool>();
    return std::vector<bool>(from, from + here.numel());
  }();
  std::vector<Offsets> places(static_cast<std::size_t>(mask.dim()));
  const Steps steps = steps_of_dense(mask.shape());
  for (std::size_t i = 0; i < marked.size(); ++i) {
    if (!marked[i]) continue;
    for (std::size_t d = 0; d < places.size(); ++d) {
      places[d].push_back(static_cast<std::int64_t>(i) / steps[d] % mask.size(static_cast<int>(d)));
    }
  }
  Tensors all;
  for (const Offsets& along : places) {
    all.push_back(Tensor::from(along, {static_cast<std::int64_t>(along.size())}, Device{}));
  }
  return all;
}

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
        for (const Tensor& along : places_of(tensor)) {
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

namespace {

// A part where tensors choose, brought to the form [what is chosen from, the rest] of which they
// choose rows.
struct Choice {
  std::vector<int> front;  // the part's dimensions in that order
  int chosen = 0;          // how many of them are chosen from
  Shape shape;             // of the indices together
  Offsets rows;            // which row each chooses
  std::int64_t count = 1;  // of rows to choose from
  Shape rest;
  int place = 0;  // where the indices' dimensions are in the result
};

Choice choice_of(const Shape& shape, const Tensors& picks) {
  Choice choice;
  std::vector<int> others;
  int before = -1;
  bool adjacent = true;
  for (int i = 0; i < shape.dim(); ++i) {
    const Tensor& pick = picks[static_cast<std::size_t>(i)];
    if (!pick.defined()) {
      others.push_back(i);
      choice.rest.push_back(shape[i]);
      continue;
    }
    adjacent = adjacent && (before < 0 || before == i - 1);
    if (before < 0) choice.place = i;
    before = i;
    choice.front.push_back(i);
    choice.count *= shape[i];
    choice.shape =
        choice.chosen++ == 0 ? pick.shape() : broadcast("x[...]", choice.shape, pick.shape());
  }
  if (!adjacent) choice.place = 0;
  choice.rows.assign(static_cast<std::size_t>(choice.shape.numel()), 0);
  for (const int dim : choice.front) {
    const Tensor pick = stretched_to(picks[static_cast<std::size_t>(dim)], choice.shape);
    const std::int64_t* at = pick.data<std::int64_t>();
    for (std::size_t i = 0; i < choice.rows.size(); ++i) {
      choice.rows[i] = choice.rows[i] * shape[dim] + at[i];
    }
  }
  choice.front.insert(choice.front.end(), others.begin(), others.end());
  return choice;
}

Shape joined_shape(const Shape& a, const Shape& b) {
  Shape all = a;
  for (const std::int64_t size : b) all.push_back(size);
  return all;
}

Tensor in_order(const Tensor& x, const std::vector<int>& order) {
  return std::is_sorted(order.begin(), order.end()) ? x : permute(x, order);
}

std::vector<int> inverse(const std::vector<int>& order) {
  std::vector<int> back(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    back[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
  }
  return back;
}

// Which dimension of [indices, rest] is which of the result, where the indices stand at their
// place.
std::vector<int> order_of_result(const Choice& choice) {
  std::vector<int> order;
  const int indices = choice.shape.dim();
  for (int i = 0; i < choice.place; ++i) order.push_back(indices + i);
  for (int i = 0; i < indices; ++i) order.push_back(i);
  for (int i = choice.place; i < choice.rest.dim(); ++i) order.push_back(indices + i);
  return order;
}

Tensor choosable_rows(const Tensor& part, const Choice& choice) {
  return reshaped(in_order(part, choice.front), joined_shape({choice.count}, choice.rest));
}

Tensor index_of(const Offsets& rows, Device device) {
  return Tensor::from(rows, {static_cast<std::int64_t>(rows.size())}, device);
}

}  // namespace

Tensor Indexed::chosen() const {
  const Tensor part = part_of("index", x_, region_.shape, region_.steps, region_.at);
  const Choice choice = choice_of(region_.shape, picks_);
  const Tensor rows =
      peal::index_select(choosable_rows(part, choice), 0, index_of(choice.rows, x_.device()));
  return in_order(reshaped(rows, joined_shape(choice.shape, choice.rest)), order_of_result(choice));
}

// The whole part, with these values where the tensors choose.
Tensor Indexed::with_chosen(const Tensor& values) const {
  const Tensor part = part_of("index", x_, region_.shape, region_.steps, region_.at);
  const Choice choice = choice_of(region_.shape, picks_);
  const std::vector<int> order = order_of_result(choice);
  const Shape there = joined_shape(choice.shape, choice.rest);
  Shape result;
  for (const int dim : order) result.push_back(there[dim]);
  const Tensor fit = in_order(fitted(values, result, x_.dtype()), inverse(order));
  if (choice.rows.empty()) return part;
  const auto n = static_cast<std::int64_t>(choice.rows.size());
  const Tensor given = reshaped(fit, joined_shape({n}, choice.rest));
  // Which value comes into each row; the last stays.
  Offsets from(static_cast<std::size_t>(choice.count), -1);
  for (std::size_t i = 0; i < choice.rows.size(); ++i) {
    from[static_cast<std::size_t>(choice.rows[i])] = static_cast<std::int64_t>(i);
  }
  Shape column{choice.count};
  for (int i = 0; i < choice.rest.dim(); ++i) column.push_back(1);
  const Tensor source = index_of(from, x_.device());
  const Tensor written = reshaped(peal::ge(source, 0), column);
  for (std::int64_t& i : from) i = std::max<std::int64_t>(i, 0);
  const Tensor rows =
      peal::where(written, peal::index_select(given, 0, index_of(from, x_.device())),
                  choosable_rows(part, choice));
  Shape permuted;
  for (const int dim : choice.front) permuted.push_back(region_.shape[dim]);
  return in_order(reshaped(rows, permuted), inverse(choice.front));
}

Tensor Indexed::get() const {
  TraceSpan span("index");
  if (by_tensors_) return chosen();
  return part_of("index", x_, region_.shape, region_.steps, region_.at);
}

void Indexed::write(const Tensor& values) const {
  const bool recorded = write_is_recorded("x[...] = y", x_, values);
  const Tensor fit = fitted(values, region_.shape, x_.dtype());
  if (recorded) return write_back("x[...] = y", x_, with_part(x_, fit, region_.steps, region_.at));
  const Tensor source = fit.storage() == x_.storage() ? fit.clone() : fit;
  kernels(x_.device()).write_strided("index_put", x_, x_, source, region_.steps, region_.at);
  x_.storage()->bump_version();
}

const Indexed& Indexed::store(const Tensor& values) const {
  TraceSpan span("index_put");
  PEAL_CHECK(values.device() == x_.device() || values.numel() == 1, "x[...] = y: x is on ",
             x_.device(), ", and y on ", values.device());
  PEAL_CHECK(!of_copy_,
             "x[...][...] = y: what tensors choose is a copy, and y would be lost; put all "
             "indices into one x[{...}]");
  const Tensor here = values.to(x_.device());
  write(by_tensors_ ? with_chosen(here) : here);
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

const Tensor& Tensor::index_put_(std::initializer_list<Index> index, const Tensor& values) const {
  (*this)[index] = values;
  return *this;
}

const Tensor& Tensor::index_put_(std::initializer_list<Index> index, Scalar value) const {
  (*this)[index] = value;
  return *this;
}

}  // namespace peal
