// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/indices.h>
#include <peal/autograd/ops/scatter.h>
#include <peal/autograd/ops/scattered.h>
#include <peal/autograd/ops/written.h>
#include <peal/autograd/tape.h>

namespace peal {

Scattered scattered_form(std::string_view op, const Tensor& x, int dim, const Tensor& index,
                         const Tensor& source) {
  Scattered form;
  form.dim = checked_dim(op, x, dim);
  if (source.defined()) check_alike(op, x, source);
  bool fits = index.dim() == x.dim() && (!source.defined() || source.dim() == x.dim());
  for (int i = 0; fits && i < x.dim(); ++i) {
    fits = (!source.defined() || index.size(i) <= source.size(i)) &&
           (i == form.dim || index.size(i) <= x.size(i));
    form.whole = form.whole && (i == form.dim || index.size(i) == x.size(i));
  }
  PEAL_CHECK(fits, op, ": an index of shape ", index.shape(), " is larger than shape ", x.shape(),
             " elsewhere than in dimension ", dim, ", or than the source of shape ",
             source.defined() ? source.shape() : Shape{});
  check_index(op, x, form.dim, index);
  form.part = index.shape();
  form.part[form.dim] = x.size(form.dim);
  if (!source.defined()) return form;
  form.source = source.shape() == index.shape()
                    ? source
                    : part_of(op, source, index.shape(), steps_of_dense(source.shape()), 0);
  return form;
}

Tensor set_at(const Tensor& x, int dim, const Tensor& index, const Tensor& source) {
  const OpName name("scatter");
  const Tensor out = written(x, [&](const Tensor& to) {
    kernels(x.device()).scatter("scatter", x, Scatter::set, to, source, index, dim);
  });
  return record("scatter", out, {x, source},
                [dim, index = save(index)](const Tensor& g, Needs needs) {
                  Tensors grads(2);
                  if (needs[0]) {
                    const Tensor at = index();
                    const Tensor none = Tensor::zeros(at.shape(), g.dtype(), g.device());
                    grads[0] = set_at(g, dim, at, none);
                  }
                  if (needs[1]) grads[1] = gathered(g, dim, index());
                  return grads;
                });
}

Tensor add_at(const Tensor& x, int dim, const Tensor& index, const Tensor& source) {
  const OpName name("scatter_add");
  const Tensor out = written(x, [&](const Tensor& to) {
    kernels(x.device()).scatter_add("scatter_add", x, to, source, index, dim);
  });
  return record(
      "scatter_add", out, {x, source}, [dim, index = save(index)](const Tensor& g, Needs needs) {
        return Tensors{needs[0] ? g : Tensor(), needs[1] ? gathered(g, dim, index()) : Tensor()};
      });
}

Tensor scatter(const Tensor& x, int dim, const Tensor& index, const Tensor& source) {
  const OpName name("scatter");
  TraceSpan span("scatter");
  if (index.numel() == 0) return x.clone();
  const Scattered form = scattered_form("scatter", x, dim, index, source);
  return of_scattered("scatter", x, form, [&](const Tensor& part) {
    return set_at(part, form.dim, index, form.source);
  });
}

Tensor scatter(const Tensor& x, int dim, const Tensor& index, Scalar value) {
  const OpName name("scatter");
  return scatter(x, dim, index,
                 stretched_to("scatter", number_of("scatter", value, x), index.shape()));
}

Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& source) {
  const OpName name("scatter_add");
  TraceSpan span("scatter_add");
  if (index.numel() == 0) return x.clone();
  const Scattered form = scattered_form("scatter_add", x, dim, index, source);
  return of_scattered("scatter_add", x, form, [&](const Tensor& part) {
    return add_at(part, form.dim, index, form.source);
  });
}

const Tensor& scatter_(const Tensor& x, int dim, const Tensor& index, const Tensor& source) {
  const OpName name("scatter_");
  if (index.numel() == 0) return x;
  const Scattered form = scattered_form("scatter_", x, dim, index, source);
  return write_onto(
      "scatter_", x, source, form.whole && lie_apart(x, index, form.source),
      [&](const Tensor& out) {
        kernels(x.device()).scatter("scatter_", x, Scatter::set, out, form.source, index, form.dim);
      },
      [&] { return scatter(x, dim, index, source); });
}

const Tensor& scatter_(const Tensor& x, int dim, const Tensor& index, Scalar value) {
  return scatter_(x, dim, index,
                  stretched_to("scatter_", number_of("scatter_", value, x), index.shape()));
}

const Tensor& scatter_add_(const Tensor& x, int dim, const Tensor& index, const Tensor& source) {
  const OpName name("scatter_add_");
  if (index.numel() == 0) return x;
  const Scattered form = scattered_form("scatter_add_", x, dim, index, source);
  return write_onto(
      "scatter_add_", x, source, form.whole && lie_apart(x, index, form.source),
      [&](const Tensor& out) {
        kernels(x.device()).scatter_add("scatter_add_", x, out, form.source, index, form.dim);
      },
      [&] { return scatter_add(x, dim, index, source); });
}

#define PEAL_WRITTEN(name, parameter, argument)                               \
  Tensor name(Tensor&& x, int dim, const Tensor& index, parameter argument) { \
    return name(static_cast<const Tensor&>(x), dim, index, argument);         \
  }
PEAL_WRITTEN(scatter_, const Tensor&, source)
PEAL_WRITTEN(scatter_, Scalar, value)
PEAL_WRITTEN(scatter_add_, const Tensor&, source)
#undef PEAL_WRITTEN

}  // namespace peal
