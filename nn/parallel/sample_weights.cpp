// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/graph.h>
#include <peal/nn/parallel/sample_weights.h>

#include <cmath>

namespace peal::nn {

std::shared_ptr<void> SampleWeights::weigh(double samples, std::string_view gradient) {
  PEAL_CHECK(samples >= 0 && std::isfinite(samples),
             "[ddp] expected a number of samples, 0 or more, got ", samples);
  PEAL_CHECK(Graph::capturing() == nullptr,
             "[ddp] backward(loss, samples) divides by a number that the host learns in each step, "
             "which a captured step does without");
  if (gradient.empty()) forget();
  PEAL_CHECK(
      open_ || gradient.empty(), "[ddp] backward(loss, samples): ", gradient,
      " has a gradient that is of no sum over samples, or of a step that is done; call "
      "zero_grad() before the first backward of a step, and give each its number of samples");
  samples_ += samples;
  open_ = weighing_ = true;
  return {nullptr, [this](void*) { weighing_ = false; }};
}

void SampleWeights::send() {
  if (!open_) return;
  total_ = Tensor::scalar(samples_, Device{});
  totalled_ = group_.all_reduce(total_, comm::ReduceOp::sum, {"samples of a step", tag_});
}

double SampleWeights::factor(int divisor) {
  if (!open_) return static_cast<double>(group_.world()) / divisor;
  std::exchange(totalled_, {}).wait();
  forget();
  const double total = total_.item<double>();
  return total > 0 ? group_.world() / total : 0;
}

}  // namespace peal::nn
