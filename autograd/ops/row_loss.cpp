// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/loss.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/row_loss.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/softmax.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/tape.h>

namespace peal {
namespace {

// How many rows count: on the CPU a number, elsewhere an f64 that the host need not wait for.
struct Counted {
  std::int64_t rows = 0;
  Tensor on_device{};
};

Counted check_targets(std::string_view op, const Tensor& x, const Tensor& target,
                      std::int64_t ignored) {
  check_class_rows(op, x, target);
  if (x.device().type != DeviceType::cpu) {
    const Tensor counted = Tensor::empty({}, DType::f64, x.device());
    kernels(x.device()).check_indices(op, target, counted, target, x.size(1), ignored);
    return {target.numel(), counted};
  }
  const std::int64_t* classes = target.data<std::int64_t>();
  std::int64_t counted = 0;
  for (std::int64_t row = 0; row < target.numel(); ++row) {
    if (classes[row] == ignored) continue;
    ++counted;
    PEAL_CHECK(classes[row] >= 0 && classes[row] < x.size(1), op, ": target of row ", row, " is ",
               classes[row], ", expected a class in [0, ", x.size(1), ")");
  }
  return {counted, {}};
}

struct Loss {
  Tensor value;
  double scale;      // of each row's gradient,
  Tensor divided{};  // which is divided by this too, where it is defined
};

// Of each row's, in the type that is computed in. The mean is over the rows that are not ignored;
// NaN where there are none, as in PyTorch. The value is rounded to `dtype` at the end.
Loss reduced_rows(std::string_view op, const Tensor& each, Reduction reduction,
                  const Counted& counted, DType dtype) {
  if (reduction == Reduction::none) return {cast(each, dtype), 1.0};
  const Kernels& table = kernels(each.device());
  const bool mean = reduction == Reduction::mean, on_device = counted.on_device.defined();
  const double scale = mean && !on_device ? 1.0 / static_cast<double>(counted.rows) : 1.0;
  Tensor total = Tensor::empty({}, each.dtype(), each.device());
  table.sum(op, each, total, each, 1, scale);
  if (!mean || !on_device) return {cast(total, dtype), scale};
  table.binary(op, total, Binary::div, total, total, cast(counted.on_device, total.dtype()));
  return {cast(total, dtype), scale, counted.on_device};
}

// `classes` as a backward kernel takes them.
ClassTargets divided(ClassTargets classes, const Tensor& counted) {
  if (counted.defined()) classes.counted = static_cast<const double*>(counted.raw());
  return classes;
}

// nll's gradient for each row's loss, which is no function of the input.
Tensor constant_gradient(std::string_view op, const Shape& shape, const Tensor& g,
                         const Tensor& target, const ClassTargets& classes, double scale) {
  const OpName name(op);
  const Tensor unit = ones(g.shape(), g.dtype(), g.device());
  Tensor dx = Tensor::empty(shape, g.dtype(), g.device());
  kernels(g.device()).nll_backward(op, g, dx, unit, target, classes, scale);
  return dx;
}

// A row's gradient beside its logits.
Tensor beside(const Tensor& g, const Tensor& target, const ClassTargets& classes) {
  return counting(g.dim() == 0 ? g : unsqueeze(g, 1), target, classes.ignored);
}

}  // namespace

void check_class_rows(std::string_view op, const Tensor& x, const Tensor& target) {
  check_floating(op, x);
  PEAL_CHECK(x.dim() == 2, op, ": expected [N, classes], got shape ", x.shape());
  PEAL_CHECK(target.dtype() == DType::i64 && target.dim() == 1 && target.size(0) == x.size(0), op,
             ": expected an i64 target [", x.size(0), "], got ", target.dtype(), " ",
             target.shape());
  PEAL_CHECK(target.device() == x.device(), op, ": input on ", x.device(), " and target on ",
             target.device(), "; put both on one device");
}

Tensor counting(const Tensor& x, const Tensor& target, std::int64_t ignore_index) {
  return where(unsqueeze(ne(target, ignore_index), 1), x, 0.0);
}

Tensor log_softmax(const Tensor& x, int dim) {
  if (widens(x)) return log_softmax(widened(x), dim);
  TraceSpan span("log_softmax");
  check_floating("log_softmax", x);
  const int at = checked_dim("log_softmax", x, dim);
  if (at != x.dim() - 1) return as_result(transpose(log_softmax(transpose(x, at, -1)), at, -1));
  PEAL_CHECK(x.size(-1) > 0 || x.numel() == 0,
             "log_softmax: expected at least one class, got shape ", x.shape());
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels(x.device()).log_softmax("log_softmax", x, y, x);
  return record("log_softmax", y, {x}, [y = save(y)](const Tensor& g) {
    if (backward_is_recorded()) return g - exp(y()) * sum(g, {-1}, true);
    Tensor dx = Tensor::empty(g.shape(), g.dtype(), g.device());
    kernels(g.device()).log_softmax_backward("log_softmax", g, dx, y(), g);
    return dx;
  });
}

Tensor row_nll_loss(std::string_view op, const Tensor& log_probabilities, const Tensor& target,
                    Reduction reduction, std::int64_t ignore_index) {
  TraceSpan span(op);
  const Counted counted = check_targets(op, log_probabilities, target, ignore_index);
  PEAL_CHECK(reduction != Reduction::mean || target.numel() > 0, op, ": the mean of no rows");
  const ClassTargets classes{ignore_index, 0};
  const DType dtype = log_probabilities.dtype();
  const Tensor each = Tensor::empty(target.shape(), computed_in(dtype), target.device());
  kernels(each.device()).nll(op, each, each, log_probabilities, target, classes);
  const Loss loss = reduced_rows(op, each, reduction, counted, dtype);
  return record(
      op, loss.value, {log_probabilities},
      [op, target = save(target), shape = log_probabilities.shape(), classes, scale = loss.scale,
       counted = loss.divided](const Tensor& g) {
        if (backward_is_recorded()) {
          return constant_gradient(op, shape, g, target(), divided(classes, counted), scale) *
                 beside(g, target(), classes);
        }
        Tensor dx = Tensor::empty(shape, g.dtype(), g.device());
        kernels(g.device()).nll_backward(op, g, dx, g, target(), divided(classes, counted), scale);
        return dx;
      });
}

Tensor row_cross_entropy(const Tensor& logits, const Tensor& target, Reduction reduction,
                         std::int64_t ignore_index, double label_smoothing) {
  const bool wide = widens(logits);  // the loss, and what is computed on the way to it
  if (wide && logits.device().type == DeviceType::cpu) {
    return row_cross_entropy(widened(logits), target, reduction, ignore_index, label_smoothing);
  }
  // Elsewhere kernels read logits as they are, and write their gradient so: no copy of either.
  constexpr std::string_view op = "cross_entropy";
  TraceSpan span(op);
  const Counted counted = check_targets(op, logits, target, ignore_index);
  const std::int64_t rows = logits.size(0);
  PEAL_CHECK(logits.size(1) > 0 || rows == 0, op, ": expected at least one class, got shape ",
             logits.shape());
  PEAL_CHECK(reduction != Reduction::mean || rows > 0, op, ": the mean of no rows");
  const ClassTargets classes{ignore_index, label_smoothing};
  const Tensor each = Tensor::empty({rows}, computed_in(logits.dtype()), logits.device());
  const Tensor kept = Tensor::empty({2, rows}, each.dtype(), each.device());
  kernels(each.device()).cross_entropy(op, each, each, kept, logits, target, classes);
  const Loss loss = reduced_rows(op, each, reduction, counted, wide ? DType::f32 : logits.dtype());
  return record(
      op, loss.value, {logits},
      [op, x = save(logits), kept, target = save(target), classes, scale = loss.scale,
       counted = loss.divided, dtype = logits.dtype()](const Tensor& g) {
        if (backward_is_recorded()) {  // (p - target) g, 0 where a row is ignored
          const Tensor row = cast(g, kept.dtype()), scores = cast(x(), kept.dtype());
          const Tensor sharp = constant_gradient(op, scores.shape(), row, target(),
                                                 divided(classes, counted), scale);
          const Tensor total = sum(sharp, {1}, true);
          const double s = classes.smoothing, even = s / static_cast<double>(scores.size(1));
          const Tensor less = s == 0 ? sharp : sharp * (1 - s) + total * even;
          const Tensor slope = less - softmax(counting(scores, target(), classes.ignored)) * total;
          return cast(slope * beside(row, target(), classes), dtype);
        }
        // Over the logits, the largest array of many a model, where they are not needed any more.
        const Tensor scores = x(), over = x.taken();
        const Tensor dx =
            over.defined() ? over : Tensor::empty(scores.shape(), dtype, scores.device());
        kernels(g.device())
            .cross_entropy_backward(op, g, dx, scores, kept, target(), g, divided(classes, counted),
                                    scale);
        return dx;
      });
}

}  // namespace peal
