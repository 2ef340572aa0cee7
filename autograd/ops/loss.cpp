// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/loss.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/tape.h>

namespace peal {
namespace {

// Returns 1 / how many rows count. On a device the number is not known to the host, which would
// have to wait for it: then 1, and share_of has the rest, and kernels look whether targets are in
// range.
double check_targets(std::string_view op, const Tensor& x, const Tensor& target,
                     std::int64_t ignored) {
  check_floating(op, x);
  PEAL_CHECK(x.dim() == 2, op, ": expected [N, classes], got shape ", x.shape());
  PEAL_CHECK(target.dtype() == DType::i64 && target.dim() == 1 && target.size(0) == x.size(0), op,
             ": expected an i64 target [", x.size(0), "], got ", target.dtype(), " ",
             target.shape());
  PEAL_CHECK(target.device() == x.device(), op, ": input on ", x.device(), " and target on ",
             target.device(), "; put both on one device");
  if (target.device().type != DeviceType::cpu) return 1;
  const std::int64_t* classes = target.data<std::int64_t>();
  std::int64_t counted = 0;
  for (std::int64_t row = 0; row < target.numel(); ++row) {
    if (classes[row] == ignored) continue;
    ++counted;
    PEAL_CHECK(classes[row] >= 0 && classes[row] < x.size(1), op, ": target of row ", row, " is ",
               classes[row], ", expected a class in [0, ", x.size(1), ")");
  }
  return 1.0 / static_cast<double>(counted);
}

// The result in `dtype`.
Tensor forward(const Tensor& x, DType dtype) {
  PEAL_CHECK(x.dim() >= 1 && (x.size(-1) > 0 || x.numel() == 0),
             "log_softmax: expected at least one class, got shape ", x.shape());
  Tensor y = Tensor::empty(x.shape(), dtype, x.device());
  kernels(x.device()).log_softmax("log_softmax", x, y, x);
  return y;
}

// A device's number of rows that count, as 1 / number; undefined for the CPU.
Tensor share_of(std::string_view op, const Tensor& target, std::int64_t ignored, DType dtype) {
  if (target.device().type == DeviceType::cpu) return {};
  const Tensor share = Tensor::empty({}, dtype, target.device());
  kernels(target.device()).target_share(op, target, share, target, ignored);
  return share;
}

// x * share, in share's type.
Tensor shared_out(const Tensor& x, const Tensor& share) {
  if (!share.defined()) return x;
  const NoGrad guard;
  return cast(cast(x, share.dtype()) * share, x.dtype());
}

struct Loss {
  Tensor value;
  double scale;  // of each row's gradient
  Tensor share;  // and this, where it is defined
};

// `average` is 1 / how many rows are not ignored; their mean is NaN where there are none, as in
// PyTorch. The value is rounded to `dtype` at the end.
Loss reduced_nll(std::string_view op, const Tensor& log_probabilities, const Tensor& target,
                 Reduction reduction, double average, const ClassTargets& classes, DType dtype) {
  const std::int64_t rows = target.numel();
  PEAL_CHECK(reduction != Reduction::mean || rows > 0, op, ": the mean of no rows");
  Tensor each = Tensor::empty({rows}, computed_in(dtype), log_probabilities.device());
  kernels(each.device()).nll(op, each, each, log_probabilities, target, classes);
  if (reduction == Reduction::none) return {cast(each, dtype), 1.0, {}};
  const double scale = reduction == Reduction::mean ? average : 1.0;
  const Tensor share =
      reduction == Reduction::mean ? share_of(op, target, classes.ignored, each.dtype()) : Tensor();
  Tensor total = Tensor::empty({}, each.dtype(), each.device());
  kernels(each.device()).sum(op, each, total, each, 1, scale);
  return {cast(shared_out(total, share), dtype), scale, share};
}

}  // namespace

Tensor log_softmax(const Tensor& x, int dim) {
  if (widens(x)) return log_softmax(widened(x), dim);
  TraceSpan span("log_softmax");
  check_floating("log_softmax", x);
  const int at = checked_dim("log_softmax", x, dim);
  if (at != x.dim() - 1) return transpose(log_softmax(transpose(x, at, -1)), at, -1);
  Tensor y = forward(x, x.dtype());
  return record("log_softmax", y, {x}, [y = save(y)](const Tensor& g) {
    Tensor dx = Tensor::empty(g.shape(), g.dtype(), g.device());
    kernels(g.device()).log_softmax_backward("log_softmax", g, dx, y(), g);
    return dx;
  });
}

Tensor nll_loss(const Tensor& log_probabilities, const Tensor& target, Reduction reduction,
                std::int64_t ignore_index) {
  if (widens(log_probabilities)) {
    return nll_loss(widened(log_probabilities), target, reduction, ignore_index);
  }
  TraceSpan span("nll_loss");
  const double average = check_targets("nll_loss", log_probabilities, target, ignore_index);
  const ClassTargets classes{ignore_index, 0};
  const Loss loss = reduced_nll("nll_loss", log_probabilities, target, reduction, average, classes,
                                log_probabilities.dtype());
  return record("nll_loss", loss.value, {log_probabilities},
                [target = save(target), shape = log_probabilities.shape(), classes,
                 scale = loss.scale, share = loss.share](const Tensor& g) {
                  Tensor dx = Tensor::empty(shape, g.dtype(), g.device());
                  kernels(g.device())
                      .nll_backward("nll_loss", g, dx, shared_out(g, share), target(), classes,
                                    scale);
                  return dx;
                });
}

Tensor cross_entropy(const Tensor& logits, const Tensor& target, Reduction reduction,
                     std::int64_t ignore_index, double label_smoothing) {
  if (widens(logits)) {
    return cross_entropy(widened(logits), target, reduction, ignore_index, label_smoothing);
  }
  TraceSpan span("cross_entropy");
  PEAL_CHECK(label_smoothing >= 0 && label_smoothing <= 1,
             "cross_entropy: expected a label smoothing in [0, 1], got ", label_smoothing);
  const double average = check_targets("cross_entropy", logits, target, ignore_index);
  const ClassTargets classes{ignore_index, label_smoothing};
  const Tensor log_probabilities = forward(logits, computed_in(logits.dtype()));
  const Loss loss = reduced_nll("cross_entropy", log_probabilities, target, reduction, average,
                                classes, logits.dtype());
  return record("cross_entropy", loss.value, {logits},
                [y = save(log_probabilities), target = save(target), classes, scale = loss.scale,
                 share = loss.share](const Tensor& g) {
                  Tensor dx = Tensor::empty(y().shape(), g.dtype(), g.device());
                  kernels(g.device())
                      .cross_entropy_backward("cross_entropy", g, dx, y(), target(),
                                              shared_out(g, share), classes, scale);
                  return dx;
                });
}

}  // namespace peal
