// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/checkpoint.h>
#include <peal/autograd/ops/ops.h>
#include <peal/nn/parallel/convert_batch_norm.h>
#include <peal/nn/parallel/pipeline/deferred_batch_norm.h>

#include <utility>

namespace peal::nn {

// Means and sums of squared distances from them, of one set of values after the other (Chan et al.,
// "Updating formulae and a pairwise algorithm for computing sample variances", 1979).
struct DeferredBatchNorm::Pending {
  void add(const Tensor& its_mean, const Tensor& its_squares, double values) {
    if (count == 0) {
      mean = its_mean;
      squares = its_squares;
      count = values;
      return;
    }
    const double all = count + values;
    const Tensor off = its_mean - mean;
    mean = mean + off * (values / all);
    squares = squares + its_squares + off * off * (count * values / all);
    count = all;
  }

  Tensor mean, squares;  // by channel
  double count = 0;      // of values a channel; 0: no micro-batch yet
  double momentum = 0;
};

namespace {

// While it lives, the module counts no batch.
class Uncounted {
 public:
  Uncounted(Tensor& count, bool on) : count_(count), kept_(on ? std::exchange(count, {}) : count) {}
  ~Uncounted() { count_ = kept_; }
  Uncounted(const Uncounted&) = delete;
  Uncounted& operator=(const Uncounted&) = delete;

 private:
  Tensor& count_;
  const Tensor kept_;
};

void move_running(const Tensor& running, const Tensor& batch, double momentum) {
  const Tensor moved = cast(running, batch.dtype()) * (1 - momentum) + batch * momentum;
  running.copy_(cast(moved, running.dtype()));
}

}  // namespace

DeferredBatchNorm::DeferredBatchNorm(const BatchNorm& other)
    : BatchNorm(Sharing{other}), pending_(std::make_shared<Pending>()) {}

Tensor DeferredBatchNorm::forward(const Tensor& x) {
  PEAL_CHECK(x.dim() >= 2, "DeferredBatchNorm: expected [N, C] or [N, C, ...], got shape ",
             x.shape());
  const Uncounted guard(num_batches_tracked, pending_->count > 0);  // one a mini-batch
  return normalised(x);
}

Tensor DeferredBatchNorm::apply(const Tensor& x, const BatchNormOptions& options) {
  if (!options.training || !running_mean.defined()) return BatchNorm::apply(x, options);
  if (recomputing()) return batch_norm(x, {}, {}, weight, bias, options);
  const DType within = running_mean.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Tensor mean = Tensor::zeros(running_mean.shape(), within, running_mean.device());
  const Tensor variance = zeros_like(mean);  // with one element less
  const Tensor y = batch_norm(x, mean, variance, weight, bias,
                              {.training = true, .momentum = 1, .eps = options.eps});
  const NoGrad guard;
  const double values = static_cast<double>(x.numel() / x.size(1));
  if (pending_->count == 0) pending_->momentum = options.momentum;
  pending_->add(mean, variance * (values - 1), values);
  return y;
}

void DeferredBatchNorm::commit() {
  if (pending_->count == 0) return;
  const NoGrad guard;
  const Pending done = std::exchange(*pending_, {});
  move_running(running_mean, done.mean, done.momentum);
  move_running(running_var, done.squares * (1 / (done.count - 1)), done.momentum);
}

void DeferredBatchNorm::drop() { *pending_ = {}; }

Module convert_deferred_batch_norm(Module module) {
  return convert_batch_norm(
      std::move(module), "convert_deferred_batch_norm",
      [](Module& norm) { return norm.as<DeferredBatchNorm>() != nullptr; },
      [](const BatchNorm& norm, const std::string&) { return DeferredBatchNorm(norm); });
}

void commit_batch_norm(const Module& module) {
  for (Module& each : module.modules()) {
    if (auto* const norm = each.as<DeferredBatchNorm>()) norm->commit();
  }
}

void drop_batch_norm(const Module& module) {
  for (Module& each : module.modules()) {
    if (auto* const norm = each.as<DeferredBatchNorm>()) norm->drop();
  }
}

}  // namespace peal::nn
