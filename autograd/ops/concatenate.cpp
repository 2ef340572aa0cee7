// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/promotion.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/tape.h>

#include <algorithm>

namespace peal {
namespace {

using Sizes = std::vector<std::int64_t>;

// `shape` is the whole's. An undefined part counts as zeros.
Tensor joined(std::string_view op, const Tensors& parts, const Sizes& sizes, const Shape& shape,
              int dim, DType dtype, Device device) {
  const Steps steps = steps_of_dense(shape);
  bool complete = true;
  for (const Tensor& part : parts) complete = complete && part.defined();
  const Tensor out =
      complete ? Tensor::empty(shape, dtype, device) : Tensor::zeros(shape, dtype, device);
  std::int64_t at = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].defined()) {
      kernels(device).write_strided(op, out, out, parts[i], steps,
                                    at * steps[static_cast<std::size_t>(dim)]);
    }
    at += sizes[i];
  }
  return out;
}

Tensors taken_apart(std::string_view op, const Tensor& x, const Sizes& sizes, int dim) {
  const Steps steps = steps_of_dense(x.shape());
  Tensors parts;
  std::int64_t at = 0;
  for (const std::int64_t size : sizes) {
    Shape shape = x.shape();
    shape[dim] = size;
    parts.push_back(Tensor::empty(shape, x.dtype(), x.device()));
    kernels(x.device())
        .read_strided(op, x, parts.back(), x, steps, at * steps[static_cast<std::size_t>(dim)]);
    parts.back().storage()->mark_copy_of(x.storage());
    at += size;
  }
  return parts;
}

// The parts with zeros for those that are undefined.
Tensors defined(const Tensors& parts, const Sizes& sizes, Shape shape, int dim, DType dtype,
                Device device) {
  Tensors all = parts;
  for (std::size_t i = 0; i < all.size(); ++i) {
    shape[dim] = sizes[i];
    if (!all[i].defined()) all[i] = Tensor::zeros(shape, dtype, device);
  }
  return all;
}

}  // namespace

Tensor cat(const Tensors& tensors, int dim) {
  const OpName name("cat");
  PEAL_CHECK(!tensors.empty(), "cat: there are no tensors");
  bool mixed = false;
  DType widest = tensors[0].dtype();
  for (const Tensor& tensor : tensors) {
    mixed = mixed || tensor.dtype() != widest;
    widest = promote_types(widest, tensor.dtype());
  }
  if (mixed) {
    Tensors alike;
    for (const Tensor& tensor : tensors) alike.push_back(cast(tensor, widest));
    return cat(alike, dim);
  }
  constexpr std::size_t most = 64;  // inputs of a node
  if (tensors.size() > most) {
    Tensors parts;
    for (std::size_t i = 0; i < tensors.size(); i += most) {
      const auto begin = tensors.begin() + static_cast<std::ptrdiff_t>(i);
      const auto count = static_cast<std::ptrdiff_t>(std::min(most, tensors.size() - i));
      parts.push_back(cat(Tensors(begin, begin + count), dim));
    }
    return cat(parts, dim);
  }
  TraceSpan span("cat");
  const int at = checked_dim("cat", tensors[0], dim);
  Shape shape = tensors[0].shape();
  shape[at] = 0;
  Sizes sizes;
  for (const Tensor& tensor : tensors) {
    check_alike("cat", tensors[0], tensor);
    bool fits = tensor.dim() == shape.dim();
    for (int i = 0; fits && i < shape.dim(); ++i) fits = i == at || tensor.size(i) == shape[i];
    PEAL_CHECK(fits, "cat: shapes ", tensors[0].shape(), " and ", tensor.shape(),
               " differ elsewhere than in dimension ", dim);
    sizes.push_back(tensor.size(at));
    shape[at] += tensor.size(at);
  }
  const Tensor out =
      joined("cat", tensors, sizes, shape, at, tensors[0].dtype(), tensors[0].device());
  if (!wants_grad(tensors)) return out;
  return record_one("cat", out, tensors, [sizes, at](const Tensors& grads, Needs) {
    if (backward_is_recorded()) return Tensors(split(grads[0], sizes, at));
    return taken_apart("cat", grads[0], sizes, at);
  });
}

Tensor stack(const Tensors& tensors, int dim) {
  const OpName name("stack");
  PEAL_CHECK(!tensors.empty(), "stack: there are no tensors");
  Tensors rows;
  for (const Tensor& tensor : tensors) {
    PEAL_CHECK(tensor.shape() == tensors[0].shape(), "stack: shapes ", tensors[0].shape(), " and ",
               tensor.shape(), " differ");
    rows.push_back(unsqueeze(tensor, dim));
  }
  return cat(rows, dim);
}

Parts split(const Tensor& x, const std::vector<std::int64_t>& sizes, int dim) {
  TraceSpan span("split");
  const int at = checked_dim("split", x, dim);
  std::int64_t total = 0;
  for (const std::int64_t size : sizes) {
    PEAL_CHECK(size >= 0, "split: a size must not be negative, got ", size);
    total += size;
  }
  PEAL_CHECK(total == x.size(at), "split: sizes that add up to ", total, " for dimension ", dim,
             " of shape ", x.shape());
  Tensors parts = taken_apart("split", x, sizes, at);
  if (!wants_grad({&x, 1})) return parts;
  return record("split", std::move(parts), {&x, 1},
                [sizes, at, shape = x.shape(), dtype = x.dtype(), device = x.device()](
                    const Tensors& grads, Needs) {
                  if (backward_is_recorded()) {
                    return Tensors{cat(defined(grads, sizes, shape, at, dtype, device), at)};
                  }
                  return Tensors{joined("split", grads, sizes, shape, at, dtype, device)};
                });
}

Parts split(const Tensor& x, std::int64_t size, int dim) {
  const OpName name("split");
  const int at = checked_dim("split", x, dim);
  PEAL_CHECK(size >= 1, "split: expected a size of at least 1, got ", size);
  Sizes sizes;
  for (std::int64_t left = x.size(at); left > 0; left -= size) {
    sizes.push_back(std::min(size, left));
  }
  return split(x, sizes, dim);
}

}  // namespace peal
