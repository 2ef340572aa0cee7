// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/broadcast.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/expand.h>
#include <peal/autograd/ops/index.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/tape.h>

#include <fmt/format.h>

#include <utility>

namespace peal {

Tensor stretched_to(std::string_view op, const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  const OpName name(op);
  const Tensor out = Tensor::empty(shape, x.dtype(), x.device());
  kernels(x.device()).read_strided(op, x, out, x, steps_of_stretched(x.shape(), shape), 0);
  return record(op, out, {x}, [part = x.shape()](const Tensor& g) { return sum_to(g, part); });
}

namespace {

Tensor expanded(std::string_view op, const Tensor& x, const std::vector<std::int64_t>& sizes) {
  TraceSpan span(op);
  const int added = static_cast<int>(sizes.size()) - x.dim();
  Shape shape;
  bool fits = added >= 0;
  for (std::size_t i = 0; fits && i < sizes.size(); ++i) {
    const int dim = static_cast<int>(i) - added;
    const std::int64_t own = dim < 0 ? 1 : x.size(dim);
    fits = sizes[i] == -1 ? dim >= 0 : sizes[i] >= 0 && (own == 1 || own == sizes[i]);
    if (fits) shape.push_back(sizes[i] == -1 ? own : sizes[i]);
  }
  PEAL_CHECK(fits, op, ": shape ", x.shape(), " does not stretch to [",
             fmt::format("{}", fmt::join(sizes, ", ")),
             "]: sizes of 1 do, and -1 keeps one that is there");
  return part_for_caller(stretched_to(op, x, shape), x);
}

std::vector<std::int64_t> sizes_of(const Shape& shape) { return {shape.begin(), shape.end()}; }

// x so often along dim, the copies one after the other or, `each`, those of an element together.
Tensor repeated(const Tensor& x, int dim, std::int64_t times, bool each) {
  if (times == 1) return x;
  Shape apart, shape = x.shape();
  for (int i = 0; i < x.dim(); ++i) {
    if (i == dim && !each) apart.push_back(1);
    apart.push_back(x.size(i));
    if (i == dim && each) apart.push_back(1);
  }
  shape[dim] *= times;
  Shape full = apart;
  full[each ? dim + 1 : dim] = times;
  return reshaped(stretched_to("repeat", reshaped(x, apart), full), shape);
}

}  // namespace

Tensor expand(const Tensor& x, const std::vector<std::int64_t>& sizes) {
  return expanded("expand", x, sizes);
}
Tensor expand_as(const Tensor& x, const Tensor& other) {
  return expanded("expand_as", x, sizes_of(other.shape()));
}
Tensor broadcast_to(const Tensor& x, const std::vector<std::int64_t>& shape) {
  return expanded("broadcast_to", x, shape);
}

Tensors broadcast_tensors(const Tensors& tensors) {
  const OpName name("broadcast_tensors");
  Shape shape;
  for (const Tensor& tensor : tensors)
    shape = broadcast("broadcast_tensors", shape, tensor.shape());
  Tensors all;
  for (const Tensor& tensor : tensors) {
    all.push_back(stretched_to("broadcast_tensors", tensor, shape));
  }
  return all;
}

Tensor repeat(const Tensor& x, const std::vector<std::int64_t>& repeats) {
  const OpName name("repeat");
  const int added = static_cast<int>(repeats.size()) - x.dim();
  PEAL_CHECK(added >= 0, "repeat: expected at least ", x.dim(), " numbers for shape ", x.shape(),
             ", got ", repeats.size());
  Shape shape;
  for (int i = 0; i < added; ++i) shape.push_back(1);
  for (const std::int64_t size : x.shape()) shape.push_back(size);
  Tensor y = reshaped(x, shape);
  for (int i = y.dim() - 1; i >= 0; --i) {  // what lies together is copied first
    const std::int64_t times = repeats[static_cast<std::size_t>(i)];
    PEAL_CHECK(times >= 0, "repeat: a number must not be negative, got ", times);
    if (y.dim() == Shape::max_dims && times != 1) {
      y = cat(Tensors(static_cast<std::size_t>(times), y), i);
    } else {
      y = repeated(y, i, times, false);
    }
  }
  return y.storage() == x.storage() ? y.clone() : y;
}

Tensor tile(const Tensor& x, const std::vector<std::int64_t>& repeats) {
  std::vector<std::int64_t> all = repeats;
  while (static_cast<int>(all.size()) < x.dim()) all.insert(all.begin(), 1);
  return repeat(x, all);
}

Tensor repeat_interleave(const Tensor& x, std::int64_t repeats, std::optional<int> dim) {
  const OpName name("repeat_interleave");
  if (!dim) return repeat_interleave(flatten(x), repeats, 0);
  PEAL_CHECK(repeats >= 0, "repeat_interleave: a number must not be negative, got ", repeats);
  const int at = checked_dim("repeat_interleave", x, *dim);
  const Around around(x.shape(), at);
  Shape shape = x.shape();
  shape[at] *= repeats;
  if (repeats == 1) return x.clone();
  const Tensor lines = reshaped(x, {around.outer, around.size, around.inner});
  return reshaped(repeated(lines, 1, repeats, true), shape);
}

Tensor repeat_interleave(const Tensor& x, const Tensor& repeats, std::optional<int> dim) {
  const OpName name("repeat_interleave");
  if (!dim) return repeat_interleave(flatten(x), repeats, 0);
  const int at = checked_dim("repeat_interleave", x, *dim);
  PEAL_CHECK(!is_floating(repeats.dtype()) && repeats.dim() <= 1 &&
                 (repeats.numel() == x.size(at) || repeats.numel() == 1),
             "repeat_interleave: expected [", x.size(at), "] integers for dimension ", *dim,
             " of shape ", x.shape(), ", got ", repeats.dtype(), " ", repeats.shape());
  const std::vector<std::int64_t> times =
      cast(repeats.detach(), DType::i64).to_vector<std::int64_t>();
  std::vector<std::int64_t> from;
  for (std::int64_t i = 0; i < x.size(at); ++i) {
    const std::int64_t count = times[times.size() == 1 ? 0 : static_cast<std::size_t>(i)];
    PEAL_CHECK(count >= 0, "repeat_interleave: a number must not be negative, got ", count);
    from.insert(from.end(), static_cast<std::size_t>(count), i);
  }
  return index_select(x, at, Tensor::from(from, {std::ssize(from)}, x.device()));
}

Tensors meshgrid(const Tensors& tensors, std::string_view indexing) {
  const OpName name("meshgrid");
  PEAL_CHECK(indexing == "ij" || indexing == "xy", "meshgrid: expected \"ij\" or \"xy\", got \"",
             indexing, "\"");
  Shape shape;
  for (const Tensor& tensor : tensors) {
    PEAL_CHECK(tensor.dim() <= 1, "meshgrid: expected shapes [n], got ", tensor.shape());
    shape.push_back(tensor.numel());
  }
  const bool turned = indexing == "xy" && tensors.size() > 1;
  if (turned) std::swap(shape[0], shape[1]);
  Tensors all;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    Shape own;
    for (int d = 0; d < shape.dim(); ++d) own.push_back(1);
    const int at = static_cast<int>(i);
    own[turned && at < 2 ? 1 - at : at] = tensors[i].numel();
    all.push_back(stretched_to("meshgrid", reshaped(tensors[i], own), shape));
  }
  return all;
}

}  // namespace peal
