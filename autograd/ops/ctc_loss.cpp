// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/ctc_loss.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/reduced.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/tape.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

namespace peal {
namespace {

constexpr double never = -std::numeric_limits<double>::infinity();

double log_sum(double a, double b, double c) {
  if (a == never && b == never && c == never) return never;  // but not what is NaN beside it
  const double most = std::max({a, b, c});
  return most + std::log(std::exp(a - most) + std::exp(b - most) + std::exp(c - most));
}

// One sequence: what is said, with blanks before, between and behind, against `steps` rows of
// scores, `row` elements apart.
class Alignment {
 public:
  Alignment(const double* scores, std::int64_t steps, std::int64_t row,
            std::span<const std::int64_t> target, std::int64_t blank)
      : scores_(scores), steps_(steps), row_(row) {
    for (const std::int64_t label : target) said_.insert(said_.end(), {blank, label});
    said_.push_back(blank);
    states_ = said_.size();
  }

  // Minus the logarithm of the probability.
  double loss() {
    if (steps_ == 0) return states_ == 1 ? 0 : -never;
    forward_.assign(static_cast<std::size_t>(steps_) * states_, never);
    for (std::size_t s = 0; s < std::min<std::size_t>(states_, 2); ++s) {
      forward_[s] = score(0, s);
    }
    for (std::int64_t t = 1; t < steps_; ++t) {
      const double* before = &forward_[static_cast<std::size_t>(t - 1) * states_];
      double* now = &forward_[static_cast<std::size_t>(t) * states_];
      for (std::size_t s = 0; s < states_; ++s) {
        now[s] = score(t, s) + log_sum(before[s], s > 0 ? before[s - 1] : never,
                                       skips_to(s) ? before[s - 2] : never);
      }
    }
    const double* last = &forward_[static_cast<std::size_t>(steps_ - 1) * states_];
    return -log_sum(last[states_ - 1], states_ > 1 ? last[states_ - 2] : never, never);
  }

  // Minus how probable each class is at each step, given what is said: the loss's gradient. Of a
  // finite loss, and its sequence's forward pass.
  void gradient(double loss, double* slopes) const {
    // From the state on to the end, without the step's own score.
    std::vector<double> onward(states_, never), next(states_);
    onward[states_ - 1] = 0;
    if (states_ > 1) onward[states_ - 2] = 0;
    for (std::int64_t t = steps_ - 1; t >= 0; --t) {
      const double* here = &forward_[static_cast<std::size_t>(t) * states_];
      for (std::size_t s = 0; s < states_; ++s) {
        slopes[t * row_ + said_[s]] -= std::exp(here[s] + onward[s] + loss);
      }
      if (t == 0) break;
      for (std::size_t s = 0; s < states_; ++s) next[s] = onward[s] + score(t, s);
      for (std::size_t s = 0; s < states_; ++s) {
        onward[s] = log_sum(next[s], s + 1 < states_ ? next[s + 1] : never,
                            s + 2 < states_ && skips_to(s + 2) ? next[s + 2] : never);
      }
    }
  }

 private:
  double score(std::int64_t t, std::size_t s) const { return scores_[t * row_ + said_[s]]; }
  // Whether the blank before a label may be left out: not between two of the same.
  bool skips_to(std::size_t s) const { return s % 2 == 1 && s >= 3 && said_[s] != said_[s - 2]; }

  const double* scores_;
  std::int64_t steps_, row_;
  std::vector<std::int64_t> said_;
  std::size_t states_ = 0;
  std::vector<double> forward_;
};

std::vector<std::int64_t> lengths_of(const char* what, const Tensor& lengths, std::int64_t n) {
  PEAL_CHECK((lengths.dtype() == DType::i64 || lengths.dtype() == DType::i32) &&
                 lengths.numel() == n && lengths.dim() <= 1,
             "ctc_loss: expected ", what, " i64 [", n, "], got ", lengths.dtype(), " ",
             lengths.shape());
  return cast(lengths, DType::i64).to_vector<std::int64_t>();
}

// Where each sequence's target lies among all elements of targets.
std::vector<std::span<const std::int64_t>> targets_of(const Tensor& targets,
                                                      const std::vector<std::int64_t>& lengths,
                                                      std::int64_t classes, std::int64_t n) {
  const bool padded = targets.dim() == 2;
  std::int64_t total = 0;
  for (const std::int64_t length : lengths) {
    PEAL_CHECK(length >= 0 && (!padded || length <= targets.size(1)), "ctc_loss: a target of ",
               length, " classes in targets of shape ", targets.shape());
    total += length;
  }
  PEAL_CHECK(padded ? targets.size(0) == n : targets.dim() == 1 && targets.numel() == total,
             "ctc_loss: expected targets [", n, ", S], or [", total,
             "] as their lengths say, got shape ", targets.shape());
  std::vector<std::span<const std::int64_t>> each;
  const std::int64_t* at = targets.data<std::int64_t>();
  for (const std::int64_t length : lengths) {
    each.emplace_back(at, static_cast<std::size_t>(length));
    for (const std::int64_t label : each.back()) {
      PEAL_CHECK(label >= 0 && label < classes, "ctc_loss: target ", label, " of sequence ",
                 each.size() - 1, " is outside of ", classes, " classes");
    }
    at += padded ? targets.size(1) : length;
  }
  return each;
}

}  // namespace

Tensor ctc_loss(const Tensor& log_probabilities, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, const CTCOptions& options) {
  constexpr std::string_view op = "ctc_loss";
  if (widens(log_probabilities)) {
    return ctc_loss(widened(log_probabilities), targets, input_lengths, target_lengths, options);
  }
  const OpName name(op);
  TraceSpan span(op);
  check_floating(op, log_probabilities);
  const Shape& given = log_probabilities.shape();
  if (given.dim() == 2) {
    PEAL_CHECK(targets.dim() == 1, op, ": expected targets [S] of scores [T, C], got shape ",
               targets.shape());
    const Tensor each = ctc_loss(reshaped(log_probabilities, {given[0], 1, given[1]}), targets,
                                 input_lengths, target_lengths, options);
    return reshaped(each, {});
  }
  PEAL_CHECK(given.dim() == 3, op, ": expected log-probabilities [T, N, C] or [T, C], got shape ",
             given);
  PEAL_CHECK(targets.dtype() == DType::i64 || targets.dtype() == DType::i32, op,
             ": expected targets of i64, got ", targets.dtype());
  const std::int64_t steps = given[0], n = given[1], classes = given[2];
  PEAL_CHECK(options.blank >= 0 && options.blank < classes, op, ": blank ", options.blank,
             " is outside of ", classes, " classes");
  PEAL_CHECK(options.reduction != Reduction::batchmean, op, ": batchmean is kl_div's alone");
  const auto inputs = lengths_of("input_lengths", input_lengths, n);
  const auto lengths = lengths_of("target_lengths", target_lengths, n);
  const Tensor said = cast(targets, DType::i64).to(Device{});
  const auto each_target = targets_of(said, lengths, classes, n);
  const Tensor scores = cast(log_probabilities.detach(), DType::f64).to(Device{});
  const bool wanted = wants_grad({&log_probabilities, 1});
  Tensor slopes = wanted ? Tensor::zeros(given, DType::f64, Device{}) : Tensor();
  std::vector<double> losses;
  for (std::int64_t k = 0; k < n; ++k) {
    const auto at = static_cast<std::size_t>(k);
    PEAL_CHECK(inputs[at] >= 0 && inputs[at] <= steps, op, ": input ", k, " has a length of ",
               inputs[at], ", expected at most ", steps);
    Alignment alignment(scores.data<double>() + k * classes, inputs[at], n * classes,
                        each_target[at], options.blank);
    const double loss = alignment.loss();
    const bool impossible = std::isinf(loss);
    losses.push_back(impossible && options.zero_infinity ? 0 : loss);
    if (!wanted || (impossible && options.zero_infinity)) continue;
    double* const slope = slopes.data<double>() + k * classes;
    if (!impossible) {
      alignment.gradient(loss, slope);
      continue;
    }
    for (std::int64_t t = 0; t < inputs[at]; ++t) {
      std::fill_n(slope + t * n * classes, classes, std::numeric_limits<double>::quiet_NaN());
    }
  }
  const DType dtype = log_probabilities.dtype(), within = computed_in(dtype);
  const Device device = log_probabilities.device();
  if (wanted) slopes = cast(slopes, within).to(device);
  Tensor each = cast(Tensor::from(losses, {n}), within).to(device);
  each = record(op, each, {log_probabilities}, [=](const Tensor& g) {
    const OpName again("ctc_loss");
    if (backward_is_recorded()) not_differentiable();
    return cast(slopes * reshaped(g, {1, n, 1}), dtype);
  });
  if (options.reduction != Reduction::mean) return reduced(op, each, options.reduction, dtype);
  std::vector<double> divisors;
  for (const std::int64_t length : lengths) {
    divisors.push_back(static_cast<double>(std::max<std::int64_t>(length, 1)));
  }
  return reduced(op, each / cast(Tensor::from(divisors, {n}), within).to(device), Reduction::mean,
                 dtype);
}

}  // namespace peal
