// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/broadcast.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/over_dims.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/rearrange.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/scan.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/tape.h>

#include <bit>
#include <limits>

namespace peal {

// Backward stretches the gradient back over what was summed.
Tensor sum_over(std::string_view op, const Tensor& x, const OverDims& over, double scale) {
  if (widens(x)) return sum_over(op, widened(x), over, scale);
  TraceSpan span(op);
  Tensor out =
      Tensor::empty(over.result, is_floating(x.dtype()) ? x.dtype() : DType::i64, x.device());
  kernels(x.device()).sum(op, x, out, x, over.mask, scale);
  return record(op, out, {x}, [kept = over.kept, shape = x.shape(), scale](const Tensor& g) {
    return expand_to(reshaped(g, kept), shape, scale);
  });
}

namespace {

Tensor mean_over(const Tensor& x, const OverDims& over) {
  PEAL_CHECK(is_floating(x.dtype()), "mean: expected a floating type, got ", x.dtype(), " ",
             x.shape(), "; take it of cast(x, DType::f32)");
  PEAL_CHECK(over.reduced > 0, "mean: no elements to average in shape ", x.shape());
  return sum_over("mean", x, over, 1.0 / static_cast<double>(over.reduced));
}

// Of each element the product of the others along `at`: of those before it, and of those behind it.
Tensor products_of_others(const Tensor& x, int at) {
  const std::int64_t n = x.size(at);
  const Tensor first = ones_like(narrow(x, at, 0, 1));
  const auto before = [&](const Tensor& line) {
    return cumprod(cat({first, narrow(line, at, 0, n - 1)}, at), at);
  };
  return before(x) * flip(before(flip(x, at)), at);
}

// The product of the others is what each is multiplied with: all of them over it, unless it, or
// another, is 0. Beside a 0, to be differentiated in turn, it is made without asking what is 0: by
// products of parts, which may leave the range of f32 where the whole does not.
Tensor product_over(const Tensor& x, const OverDims& over) {
  if (widens(x)) return product_over(widened(x), over);
  TraceSpan span("prod");
  const Tensor out =
      Tensor::empty(over.result, is_floating(x.dtype()) ? x.dtype() : DType::i64, x.device());
  kernels(x.device()).reduce("prod", x, Reduce::prod, out, x, over.mask);
  return record("prod", out, {x}, [x = save(x), over](const Tensor& g) {
    const Tensor wide = cast(x(), computed_in(x().dtype())), none = eq(wide, 0);
    if (backward_is_recorded() && any(none).item<bool>()) {
      const Tensor exact = cast(wide, DType::f64);
      const bool all = over.reduced == exact.numel();
      const Tensor others = all ? products_of_others(reshaped(exact, {exact.numel()}), 0)
                                : products_of_others(exact, std::countr_zero(over.mask));
      const Tensor along = cast(reshaped(g, over.kept), DType::f64);
      return cast(along * reshaped(others, exact.shape()), g.dtype());
    }
    const OverDims keeping(wide.shape(), over.mask, true);
    const Tensor zeros = sum_over("prod", none, keeping), safe = where(none, 1.0, wide);
    const Tensor all = product_over(safe, keeping);
    const Tensor others =
        where(none, where(eq(zeros, 1), all, 0.0), where(eq(zeros, 0), all / safe, 0.0));
    return cast(cast(reshaped(g, over.kept), wide.dtype()) * others, g.dtype());
  });
}

Tensor truth_over(std::string_view op, Reduce which, const Tensor& x, const OverDims& over) {
  TraceSpan span(op);
  const Tensor out = Tensor::empty(over.result, DType::boolean, x.device());
  kernels(x.device()).reduce(op, x, which, out, x, over.mask);
  return out;
}

Tensor without_nan(const Tensor& x) { return is_floating(x.dtype()) ? where(eq(x, x), x, 0.0) : x; }
Tensor nanmean_over(const Tensor& x, const OverDims& over) {
  check_floating("nanmean", x);
  const Tensor count = sum_over("nanmean", eq(x, x), over);
  return sum_over("nanmean", without_nan(x), over) / cast(count, x.dtype());
}

Tensor nonzero_over(const Tensor& x, const OverDims& over) {
  return sum_over("count_nonzero", ne(x, 0), over);
}

Tensor log_sum_over(const Tensor& x, const OverDims& over) {
  const Tensor real = is_floating(x.dtype()) ? x : cast(x, DType::f32);
  const Tensor wide = cast(real, computed_in(real.dtype()));
  constexpr double infinity = std::numeric_limits<double>::infinity();
  Tensor y;
  {
    const NoGrad guard;
    const OverDims keeping(x.shape(), over.mask, true);
    if (over.reduced == 0) {
      y = full(over.result, -infinity, wide.dtype(), x.device());
    } else {
      const Tensor most = Tensor::empty(keeping.result, wide.dtype(), x.device());
      kernels(x.device()).reduce("logsumexp", wide, Reduce::amax, most, wide, over.mask);
      const Tensor shift = where(eq(abs(most), infinity), 0.0, most);
      y = reshaped(log(sum_over("logsumexp", exp(wide - shift), keeping)) + shift, over.result);
    }
  }
  const Tensor sum = record(
      "logsumexp", y, {wide}, [wide = save(wide), y = save(y), kept = over.kept](const Tensor& g) {
        const Tensor total = reshaped(y(), kept);
        const Tensor share = where(eq(total, -infinity), 0.0, exp(wide() - total));
        return reshaped(g, kept) * share;
      });
  return cast(sum, real.dtype());
}

}  // namespace

#define PEAL_REDUCTION(name, f, ...)                                           \
  Tensor name(const Tensor& x) {                                               \
    const OpName op(#name);                                                    \
    return f(__VA_ARGS__ __VA_OPT__(, ) x, OverDims(x));                       \
  }                                                                            \
  Tensor name(const Tensor& x, const Dims& dims, bool keepdim) {               \
    const OpName op(#name);                                                    \
    return f(__VA_ARGS__ __VA_OPT__(, ) x, OverDims(#name, x, dims, keepdim)); \
  }
PEAL_REDUCTION(sum, sum_over, "sum")
PEAL_REDUCTION(mean, mean_over)
PEAL_REDUCTION(any, truth_over, "any", Reduce::any)
PEAL_REDUCTION(all, truth_over, "all", Reduce::all)
PEAL_REDUCTION(nanmean, nanmean_over)
#undef PEAL_REDUCTION

Tensor nansum(const Tensor& x) {
  const OpName op("nansum");
  return sum_over("nansum", without_nan(x), OverDims(x));
}
Tensor nansum(const Tensor& x, const Dims& dims, bool keepdim) {
  const OpName op("nansum");
  return sum_over("nansum", without_nan(x), OverDims("nansum", x, dims, keepdim));
}
Tensor prod(const Tensor& x) {
  const OpName op("prod");
  return product_over(x, OverDims(x));
}
Tensor prod(const Tensor& x, int dim, bool keepdim) {
  const OpName op("prod");
  return product_over(x, OverDims("prod", x, dim, keepdim));
}
Tensor count_nonzero(const Tensor& x) {
  const OpName op("count_nonzero");
  return nonzero_over(x, OverDims(x));
}
Tensor count_nonzero(const Tensor& x, const Dims& dims) {
  const OpName op("count_nonzero");
  return nonzero_over(x, OverDims("count_nonzero", x, dims, false));
}
Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim) {
  const OpName op("logsumexp");
  return log_sum_over(x, OverDims("logsumexp", x, dims, keepdim));
}

}  // namespace peal
