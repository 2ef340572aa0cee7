// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/graph.h>
#include <peal/autograd/ops/choose.h>
#include <peal/nn/parallel/announce.h>
#include <peal/nn/parallel/sample_weights.h>

#include <cmath>
#include <vector>

namespace peal::nn {
namespace {

// Of numbers that travel by digits: those next to 1 have as many as f32 does.
constexpr double unit = 1.0 / (std::uint64_t{1} << 32);

}  // namespace

SampleWeights::Weighed SampleWeights::weigh(double samples, DType of_loss,
                                            std::string_view gradient) {
  PEAL_CHECK(samples >= 0 && std::isfinite(samples),
             "[ddp] expected a number of samples, 0 or more, got ", samples);
  PEAL_CHECK(Graph::capturing() == nullptr,
             "[ddp] backward(loss, samples) divides by a number that the host learns in each step, "
             "which a captured step does without");
  if (gradient.empty()) forget();
  PEAL_CHECK(
      is_open_ || gradient.empty(), "[ddp] backward(loss, samples): ", gradient,
      " has a gradient that is of no sum over samples, or of a step that is done; call "
      "zero_grad() before the first backward of a step, and give each its number of samples");
  if (!is_open_ && expected_ == 0) {
    announce(group_, {.what = Announcement::What::samples, .wrapper = tag_});
    estimate(samples);
  }
  open();
  // As many as the loss's type makes of them: what is divided by is what was multiplied by.
  const double factor =
      cast(cast(Tensor::scalar(samples * scale_, Device{}), of_loss), DType::f64).item<double>();
  samples_ += factor;
  weighing_ = true;
  return {factor, {nullptr, [this](void*) { weighing_ = false; }}};
}

void SampleWeights::open() {
  if (is_open_) return;
  is_open_ = true;
  scale_ = expected_ > 0 ? std::exp2(std::round(std::log2(group_.world() / expected_))) : 1;
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
  expected_ = all.item<double>();
}

void SampleWeights::send() {
  if (!is_open_) return;
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
  if (!is_open_) return;
  const std::vector<double> averages = cast(where, DType::f64).to_vector<double>();
  if (averages.back() != 0) return send();
  double whole = 0;
  for (std::size_t k = averages.size() - 1; k-- > 0;) {
    whole = 256 * whole + std::round(averages[k] * group_.world());
  }
  total_ = Tensor::scalar(whole * unit, Device{});
}

double SampleWeights::factor(int divisor) {
  if (!is_open_) return static_cast<double>(group_.world()) / divisor;
  std::exchange(totalled_, {}).wait();
  forget();
  const double total = total_.item<double>();
  if (total == 0) return 0;
  expected_ = total / scale_;
  return group_.world() / total;
}

}  // namespace peal::nn
