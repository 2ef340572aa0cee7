// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/index.h>
#include <peal/autograd/ops/index_write.h>
#include <peal/autograd/ops/indices.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/ops/written.h>
#include <peal/autograd/tape.h>

namespace peal {
namespace {

// x's slices at the index replaced, or added to.
Tensor slices_set(const Tensor& x, int dim, const Tensor& index, const Tensor& source) {
  const OpName name("index_copy");
  const Tensor out = written(x, [&](const Tensor& to) {
    kernels(x.device()).index_copy("index_copy", x, to, source, index, dim);
  });
  return record("index_copy", out, {x, source},
                [dim, index = save(index), part = source.shape()](const Tensor& g, Needs needs) {
                  Tensors grads(2);
                  if (needs[0]) {
                    const Tensor none = Tensor::zeros(part, g.dtype(), g.device());
                    grads[0] = slices_set(g, dim, index(), none);
                  }
                  if (needs[1]) grads[1] = index_select(g, dim, index());
                  return grads;
                });
}

Tensor slices_added(const Tensor& x, int dim, const Tensor& index, const Tensor& source) {
  const OpName name("index_add");
  const Tensor out = written(x, [&](const Tensor& to) {
    kernels(x.device()).index_add("index_add", x, to, source, index, dim);
  });
  return record("index_add", out, {x, source},
                [dim, index = save(index)](const Tensor& g, Needs needs) {
                  return Tensors{needs[0] ? g : Tensor(),
                                 needs[1] ? index_select(g, dim, index()) : Tensor()};
                });
}

int checked_slices(std::string_view op, const Tensor& x, int dim, const Tensor& index,
                   const Tensor& source) {
  const int at = checked_dim(op, x, dim);
  check_alike(op, x, source);
  PEAL_CHECK(index.dim() == 1, op, ": expected an index [n], got shape ", index.shape());
  Shape expected = x.shape();
  expected[at] = index.numel();
  PEAL_CHECK(source.shape() == expected, op, ": expected a source of shape ", expected,
             " for shape ", x.shape(), ", got ", source.shape());
  check_index(op, x, at, index);
  return at;
}

Tensor filling(std::string_view op, const Tensor& x, int dim, const Tensor& index,
               const Tensor& value) {
  PEAL_CHECK(value.dim() == 0, op, ": expected one value, got shape ", value.shape());
  Shape part = x.shape();
  part[checked_dim(op, x, dim)] = index.numel();
  return stretched_to(op, cast(value, x.dtype()), part);
}

}  // namespace

Tensor index_add(const Tensor& x, int dim, const Tensor& index, const Tensor& source,
                 Scalar alpha) {
  const OpName name("index_add");
  TraceSpan span("index_add");
  const int at = checked_slices("index_add", x, dim, index, source);
  const bool plain = alpha.to<double>() == 1;
  return slices_added(x, at, index, plain ? source : cast(mul(source, alpha), x.dtype()));
}

Tensor index_copy(const Tensor& x, int dim, const Tensor& index, const Tensor& source) {
  const OpName name("index_copy");
  TraceSpan span("index_copy");
  return slices_set(x, checked_slices("index_copy", x, dim, index, source), index, source);
}

Tensor index_fill(const Tensor& x, int dim, const Tensor& index, const Tensor& value) {
  const OpName name("index_fill");
  return index_copy(x, dim, index, filling("index_fill", x, dim, index, value));
}
Tensor index_fill(const Tensor& x, int dim, const Tensor& index, Scalar value) {
  const OpName name("index_fill");
  return index_fill(x, dim, index, number_of("index_fill", value, x));
}

const Tensor& index_add_(const Tensor& x, int dim, const Tensor& index, const Tensor& source) {
  const OpName name("index_add_");
  const int at = checked_slices("index_add_", x, dim, index, source);
  return write_onto(
      "index_add_", x, source, lie_apart(x, index, source),
      [&](const Tensor& out) {
        kernels(x.device()).index_add("index_add_", x, out, source, index, at);
      },
      [&] { return index_add(x, dim, index, source); });
}

const Tensor& index_copy_(const Tensor& x, int dim, const Tensor& index, const Tensor& source) {
  const OpName name("index_copy_");
  const int at = checked_slices("index_copy_", x, dim, index, source);
  return write_onto(
      "index_copy_", x, source, lie_apart(x, index, source),
      [&](const Tensor& out) {
        kernels(x.device()).index_copy("index_copy_", x, out, source, index, at);
      },
      [&] { return index_copy(x, dim, index, source); });
}

const Tensor& index_fill_(const Tensor& x, int dim, const Tensor& index, Scalar value) {
  const OpName name("index_fill_");
  const Tensor one = number_of("index_fill_", value, x);
  return index_copy_(x, dim, index, filling("index_fill_", x, dim, index, one));
}

#define PEAL_WRITTEN(name, parameter, argument)                               \
  Tensor name(Tensor&& x, int dim, const Tensor& index, parameter argument) { \
    return name(static_cast<const Tensor&>(x), dim, index, argument);         \
  }
PEAL_WRITTEN(index_add_, const Tensor&, source)
PEAL_WRITTEN(index_copy_, const Tensor&, source)
PEAL_WRITTEN(index_fill_, Scalar, value)
#undef PEAL_WRITTEN

}  // namespace peal
