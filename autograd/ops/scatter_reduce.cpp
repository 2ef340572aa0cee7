// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/indices.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/scatter.h>
#include <peal/autograd/ops/scattered.h>
#include <peal/autograd/ops/written.h>
#include <peal/autograd/tape.h>

#include <limits>

namespace peal {
namespace {

Tensor multiply_at(const Tensor& x, int dim, const Tensor& index, const Tensor& source);

// A source's gradient is the product of all others: of all that are not 0, over it unless it is 0;
// and 0 beside a 0, even where that product leaves the type's range. To be differentiated in turn,
// an only 0 beside counts with its value, and products are f64, as in prod(). Two or more beside
// make a constant 0, which is right for the second derivatives, and not for third ones.
Tensor gradient_of_factors(const Tensor& g, const Tensor& x, int dim, const Tensor& index,
                           const Tensor& source) {
  const Tensor zero = eq(source, 0), others = where(zero, 1, source);
  const auto beside = [&](const Tensor& each) {
    const Tensor none = Tensor::zeros(g.shape(), each.dtype(), g.device());
    return gathered(add_at(none, dim, index, each), dim, index) - each;
  };
  const Tensor count = beside(cast(zero, DType::f32));
  const auto without = [&](const Tensor& factors, DType dtype) {
    const Tensor all = multiply_at(cast(x, dtype), dim, index, factors);
    return gathered(cast(g, dtype) * all, dim, index) / factors;
  };
  if (!backward_is_recorded() || !any(zero).item<bool>()) {
    return where(eq(count, 0), without(others, g.dtype()), 0.0);
  }
  const Tensor exact = cast(source, DType::f64);
  const Tensor factor =
      where(eq(count, 0), 1.0, where(eq(count, 1), beside(where(zero, exact, 0.0)), 0.0));
  return cast(without(where(zero, 1, exact), DType::f64) * factor, g.dtype());
}

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
        if (needs[1]) grads[1] = gradient_of_factors(g, x(), dim, at, from);
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
