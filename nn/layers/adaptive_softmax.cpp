// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/index.h>
#include <peal/autograd/ops/index_write.h>
#include <peal/autograd/ops/loss.h>
#include <peal/autograd/ops/masked.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/shape.h>
#include <peal/nn/layers/adaptive_softmax.h>
#include <peal/nn/layers/sequential.h>

#include <cmath>

namespace peal::nn {
namespace {

constexpr const char* adaptive = "AdaptiveLogSoftmaxWithLoss";

// Features of the head: its own classes, and one for each tail.
std::int64_t head_features(const std::vector<std::int64_t>& cutoffs, std::int64_t n_classes) {
  PEAL_CHECK(!cutoffs.empty(), adaptive, ": expected at least one cutoff");
  std::int64_t before = 0;
  for (const std::int64_t each : cutoffs) {
    PEAL_CHECK(each > before && each < n_classes, adaptive, ": expected cutoffs that rise between ",
               "1 and n_classes - 1, ", n_classes - 1, ", got ", each, " after ", before);
    before = each;
  }
  return cutoffs.front() + std::ssize(cutoffs);
}

}  // namespace

AdaptiveLogSoftmaxWithLoss::AdaptiveLogSoftmaxWithLoss(std::int64_t in_features,
                                                       std::int64_t n_classes,
                                                       const std::vector<std::int64_t>& cutoffs,
                                                       double div_value, bool head_bias)
    : head(add("head", Linear(in_features, head_features(cutoffs, n_classes), head_bias))),
      tail(add("tail", ModuleList())),
      cutoffs_(cutoffs) {
  cutoffs_.push_back(n_classes);
  for (std::size_t i = 1; i < cutoffs_.size(); ++i) {
    const double share =
        std::floor(static_cast<double>(in_features) / std::pow(div_value, static_cast<double>(i)));
    PEAL_CHECK(share >= 1, adaptive, ": tail ", i - 1, " has ", in_features, " / ", div_value, "^",
               i, " hidden features, which is less than one; expected a smaller div_value, or ",
               "fewer cutoffs");
    const auto hidden = static_cast<std::int64_t>(share);
    const Linear down(in_features, hidden, false);
    tail.append(Sequential(down, Linear(hidden, cutoffs_[i] - cutoffs_[i - 1], false)));
  }
}

void AdaptiveLogSoftmaxWithLoss::check_rows(std::string_view op, const Tensor& x) const {
  PEAL_CHECK(x.dim() == 2, adaptive, ": ", op, " expected [N, in_features], got shape ", x.shape());
}

ASMOutput AdaptiveLogSoftmaxWithLoss::score(const Tensor& x, const Tensor& target) {
  PEAL_CHECK(target.dim() <= 1 && x.dim() == target.dim() + 1 &&
                 (target.dim() == 0 || x.size(0) == target.size(0)) && target.dtype() == DType::i64,
             adaptive, ": expected x [N, in_features] and target [N] of i64, or of one sample ",
             "[in_features] and [], got ", x.shape(), " and ", target.dtype(), " ", target.shape());
  if (target.dim() == 0) {
    const ASMOutput one = score(unsqueeze(x, 0), unsqueeze(target, 0));
    return {squeeze(one.output, 0), one.loss};
  }
  const Tensor scores = log_softmax(head(x), 1);
  const std::int64_t own = cutoffs_.front();
  Tensor of_head = target;  // which of the head's features
  Tensor within = Tensor::zeros(target.shape(), scores.dtype(), scores.device());
  std::int64_t found = lt(target, own).sum().item<std::int64_t>();
  for (std::size_t i = 1; i < cutoffs_.size(); ++i) {
    const std::int64_t low = cutoffs_[i - 1], feature = own + static_cast<std::int64_t>(i) - 1;
    const Tensor rows =
        nonzero(logical_and(ge(target, low), lt(target, cutoffs_[i]))).reshape({-1});
    if (rows.numel() == 0) continue;
    found += rows.numel();
    const Tensor of_tail =
        log_softmax(tail[static_cast<std::int64_t>(i) - 1](index_select(x, 0, rows)), 1);
    const Tensor place = index_select(target, 0, rows) - low;
    within = index_copy(within, 0, rows, squeeze(gather(of_tail, 1, unsqueeze(place, 1)), 1));
    of_head = index_fill(of_head, 0, rows, feature);
  }
  const bool classes =
      found == target.numel() && (found == 0 || target.min().item<std::int64_t>() >= 0);
  PEAL_CHECK(classes, adaptive, ": expected targets in [0, ", cutoffs_.back() - 1,
             "], got them in [", target.min().item<std::int64_t>(), ", ",
             target.max().item<std::int64_t>(), "]");
  const Tensor output = within + squeeze(gather(scores, 1, unsqueeze(of_head, 1)), 1);
  return {output, mean(-output)};
}

Tensor AdaptiveLogSoftmaxWithLoss::log_prob(const Tensor& x) {
  check_rows("log_prob", x);
  const Tensor scores = log_softmax(head(x), 1);
  const std::int64_t own = cutoffs_.front();
  Tensors all{narrow(scores, 1, 0, own)};
  for (std::int64_t i = 0; i < std::ssize(cutoffs_) - 1; ++i) {
    all.push_back(log_softmax(tail[i](x), 1) + narrow(scores, 1, own + i, 1));
  }
  return cat(all, 1);
}

Tensor AdaptiveLogSoftmaxWithLoss::predict(const Tensor& x) {
  check_rows("predict", x);
  const Tensor likeliest = argmax(head(x), 1);
  const Tensor rows = nonzero(ge(likeliest, cutoffs_.front())).reshape({-1});
  if (rows.numel() == 0) return likeliest;
  return index_copy(likeliest, 0, rows, argmax(log_prob(index_select(x, 0, rows)), 1));
}

}  // namespace peal::nn
