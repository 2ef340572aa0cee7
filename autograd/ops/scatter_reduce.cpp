// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/indices.h>
#include <peal/autograd/ops/scatter.h>
#include <peal/autograd/ops/scattered.h>
#include <peal/autograd/ops/written.h>
#include <peal/autograd/tape.h>

#include <limits>

namespace peal {
namespace {

// Products: a source's gradient is the product of all others, which is found without dividing by
// the one that is 0, where there is one.
Tensor multiply_at(const Tensor& x, int dim, const Tensor& index, const Tensor& source) {
  const OpName name("scatter_reduce");
  const Tensor out = written(x, [&](const Tensor& to) {
    kernels(x.device()).scatter("scatter_reduce", x, Scatter::multiply, to, source, index, dim);
  });
  return record(
      "scatter_reduce", out, {x, source},
      [dim, index = save(index), x = save(x), source = save(source)](const Tensor& g, Needs needs) {
        Tensors grads(2);
        const Tensor at = index(), from = source();
        const Tensor ones_like_x = full(g.shape(), 1, g.dtype(), g.device());
        if (needs[0]) grads[0] = g * multiply_at(ones_like_x, dim, at, from);
        if (needs[1]) {
          const Tensor zero = eq(from, 0), others = where(zero, 1, from);
          const Tensor none = Tensor::zeros(g.shape(), DType::f32, g.device());
          const Tensor zeros = gathered(add_at(none, dim, at, cast(zero, DType::f32)), dim, at);
          const Tensor all = gathered(g * multiply_at(x(), dim, at, others), dim, at);
          const Tensor slope = where(eq(zeros, 0), all / others, 0);
          grads[1] = where(zero & eq(zeros, 1), all, slope);
        }
        return grads;
      });
}

// Shared by all that equal the largest or smallest, of x and of the source.
Tensor extreme_at(const Tensor& x, int dim, const Tensor& index, const Tensor& source,
                  Scatter which) {
  const OpName name("scatter_reduce");
  const Tensor out = written(x, [&](const Tensor& to) {
    kernels(x.device()).scatter("scatter_reduce", x, which, to, source, index, dim);
  });
  return record("scatter_reduce", out, {x, source},
                [dim, index = save(index), own = eq(x.detach(), out),
                 of_source = eq(source.detach(), gathered(out, dim, index)),
                 dtype = x.dtype()](const Tensor& g, Needs needs) {
                  const Tensor at = index(), from_x = cast(own, dtype),
                               from_source = cast(of_source, dtype);
                  const Tensor shared = g / add_at(from_x, dim, at, from_source);
                  return Tensors{needs[0] ? shared * from_x : Tensor(),
                                 needs[1] ? gathered(shared, dim, at) * from_source : Tensor()};
                });
}

// The number that no element of the type is beyond: where `largest`, none is smaller.
Scalar outermost(DType dtype, bool largest) {
  return visit(dtype, [&]<class T>() -> Scalar {
    if constexpr (std::is_integral_v<T>) {
      return largest ? std::numeric_limits<T>::min() : std::numeric_limits<T>::max();
    } else {
      const double infinity = std::numeric_limits<double>::infinity();
      return largest ? -infinity : infinity;
    }
  });
}

Tensor reduced_at(const Tensor& x, int dim, const Tensor& index, const Tensor& source,
                  ScatterReduce reduce, bool include_self) {
  constexpr std::string_view op = "scatter_reduce";
  const auto emptied = [&](Scalar with) {
    if (include_self) return x;
    return set_at(x, dim, index, stretched_to(op, number_of(op, with, x), index.shape()));
  };
  switch (reduce) {
    case ScatterReduce::prod:
      return multiply_at(emptied(1), dim, index, source);
    case ScatterReduce::amax:
      return extreme_at(emptied(outermost(x.dtype(), true)), dim, index, source, Scatter::maximum);
    case ScatterReduce::amin:
      return extreme_at(emptied(outermost(x.dtype(), false)), dim, index, source, Scatter::minimum);
    default:
      break;
  }
  const Tensor sum = add_at(emptied(0), dim, index, source);
  if (reduce == ScatterReduce::sum) return sum;
  check_floating("scatter_reduce by mean", x);
  const Tensor each = full(index.shape(), 1, DType::f32, x.device());
  const Tensor own = full(x.shape(), 1, DType::f32, x.device());
  const Tensor none = full(index.shape(), 0, DType::f32, x.device());
  const Tensor count = add_at(include_self ? own : set_at(own, dim, index, none), dim, index, each);
  return sum / cast(count, x.dtype());
}

}  // namespace

Tensor scatter_reduce(const Tensor& x, int dim, const Tensor& index, const Tensor& source,
                      ScatterReduce reduce, bool include_self) {
  const OpName name("scatter_reduce");
  TraceSpan span("scatter_reduce");
  if (index.numel() == 0) return x.clone();
  const Scattered form = scattered_form("scatter_reduce", x, dim, index, source);
  return of_scattered("scatter_reduce", x, form, [&](const Tensor& part) {
    return reduced_at(part, form.dim, index, form.source, reduce, include_self);
  });
}

}  // namespace peal
