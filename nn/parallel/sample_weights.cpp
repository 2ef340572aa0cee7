// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/graph.h>
#include <peal/autograd/ops/choose.h>
#include <peal/comm/group/agree.h>
#include <peal/nn/parallel/announce.h>
#include <peal/nn/parallel/sample_weights.h>

#include <cmath>
#include <utility>
#include <vector>

namespace peal::nn {
namespace {

// Of numbers that travel by digits: those next to 1 have as many as f32 does.
constexpr double unit = 1.0 / (std::uint64_t{1} << 32);
constexpr std::string_view what = "backward(loss, samples)";
// Whose backward this thread runs.
thread_local const SampleWeights* weighs_here = nullptr;

// On all ranks, where the numbers of samples have no finite sum: `wrong` is this rank's part in it.
[[noreturn]] void fail_sum(const comm::ProcessGroup& group, const std::string& wrong) {
  comm::agree_unless(group, concat("[ddp] ", what), "", wrong, "");
  fail(concat("[ddp] ", what, ": the samples of all ranks have an infinite sum"));
}

}  // namespace

SampleWeights::Weighed SampleWeights::weigh(double samples, DType of_loss,
                                            std::string_view gradient, bool heard) {
  PEAL_CHECK(Graph::capturing() == nullptr,
             "[ddp] backward(loss, samples) divides by a number that the host learns in each step, "
             "which a captured step does without");
  if (gradient.empty()) forget();
  std::string wrong;
  if (!(samples >= 0 && std::isfinite(samples))) {
    wrong = concat("expected a number of samples, 0 or more, got ", samples);
  } else if (!is_open_ && !gradient.empty()) {
    wrong = concat(gradient,
                   " has a gradient that is of no sum over samples, or of a step that is done; "
                   "call zero_grad() before the first backward of a step, and give each its "
                   "number of samples");
  }
  const bool is_first = !is_open_ && expected_ == 0, is_wrong = !wrong.empty();
  if (is_wrong) {
    // The others, who may be in the step already, hear it when the numbers are added.
    PEAL_CHECK((heard || is_first) && group_.world() > 1, "[ddp] ", what, ": ", wrong);
    samples = std::nan("");
    wrong_ = std::move(wrong);
  }
  if (is_first) {
    announce(group_, {.what = Announcement::What::samples, .wrapper = tag_});
    estimate(samples);
  }
  open();
  // As many as the loss's type makes of them: what is divided by is what was multiplied by.
  const double factor =
      cast(cast(Tensor::scalar(samples * scale_, Device{}), of_loss), DType::f64).item<double>();
  const double counted = samples_;
  samples_ += factor;
  const SampleWeights* const before = std::exchange(weighs_here, this);
  return {is_wrong ? 0 : factor, counted, {nullptr, [before](void*) { weighs_here = before; }}};
}

bool SampleWeights::weighing() const { return weighs_here == this; }
bool SampleWeights::others_weigh() const { return weighs_here != nullptr && !weighing(); }

void SampleWeights::open() {
  if (is_open_) return;
  is_open_ = true;
  scale_ = expected_ > 0 ? std::exp2(std::round(std::log2(group_.world() / expected_))) : 1;
}

void SampleWeights::spoil(std::string wrong) {
  open();
  samples_ = std::nan("");
  wrong_ = std::move(wrong);
}

void SampleWeights::follow(bool weighted) {
  if (weighted) {
    open();
  } else {
    forget();
  }
}

void SampleWeights::estimate(double samples) {
  const Tensor all = Tensor::scalar(samples, Device{});
  group_.all_reduce(all, comm::ReduceOp::sum, {"samples of a first backward", tag_}).wait();
  const double sum = all.item<double>();
  if (!std::isfinite(sum)) fail_sum(group_, std::exchange(wrong_, {}));
  expected_ = sum;
}

void SampleWeights::begin(const Tensor& where) {
  sent_ = false;
  if (where.defined()) {
    put(where);
  } else {
    send();
  }
}

void SampleWeights::send() {
  if (!is_open_ || std::exchange(sent_, true)) return;
  total_ = Tensor::scalar(samples_, Device{});
  totalled_ = group_.all_reduce(total_, comm::ReduceOp::sum, {"samples of a step", tag_});
}

// Its digits to base 256, so that sums over ranks are whole numbers that any rounding leaves whole.
void SampleWeights::put(const Tensor& where) const {
  if (!is_open_) return;
  std::vector<double> values(digits, 0);
  const double whole = samples_ / unit;
  if (whole < std::exp2(8 * (digits - 1)) && std::floor(whole) == whole) {
    auto rest = static_cast<std::uint64_t>(whole);
    for (std::size_t k = 0; k + 1 < values.size(); ++k, rest >>= 8) {
      values[k] = static_cast<double>(rest & 0xff);
    }
  } else {
    values.back() = 1;
  }
  where.copy_(cast(Tensor::from(values, {digits}, Device{}), where.dtype()));
}

void SampleWeights::take(const Tensor& where) {
  if (!is_open_ || sent_) return;
  const std::vector<double> averages = cast(where, DType::f64).to_vector<double>();
  if (averages.back() != 0) return send();
  double whole = 0;
  for (std::size_t k = averages.size() - 1; k-- > 0;) {
    whole = 256 * whole + std::round(averages[k] * group_.world());
  }
  total_ = Tensor::scalar(whole * unit, Device{});
}

void SampleWeights::check() {
  if (!is_open_) return;
  std::exchange(totalled_, {}).wait();
  if (std::isfinite(total_.item<double>())) return;
  const std::string wrong = wrong_;
  forget();
  fail_sum(group_, wrong);
}

void SampleWeights::check_unheard() {
  if (wrong_.empty()) return;
  const std::string wrong = wrong_;
  forget();
  fail(concat("[ddp] ", what, ": ", wrong));
}

double SampleWeights::factor(int divisor) {
  if (!is_open_) return static_cast<double>(group_.world()) / divisor;
  forget();
  const double total = total_.item<double>();
  if (total == 0) return 0;
  expected_ = total / scale_;
  return group_.world() / total;
}

double SampleWeights::factor_now(int divisor) {
  if (!is_open_) return static_cast<double>(group_.world()) / divisor;
  send();
  totalled_.wait();
  const double total = total_.item<double>();
  // Without a finite sum the step fails (check() says so), and leaves nothing to keep.
  return total == 0 || !std::isfinite(total) ? 0 : group_.world() / total;
}

}  // namespace peal::nn
