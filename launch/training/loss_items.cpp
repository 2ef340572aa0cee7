// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/ops/ops.h>
#include <peal/launch/training/loss_items.h>
#include <peal/nn/loss.h>

namespace peal::launch {

double TargetCounts::of(const Tensor& y) const {
  const NoGrad guard;
  const Tensor counts = y != ignore_index;
  if (!weight.defined()) return sum(cast(counts, DType::f64)).item<double>();
  // A target that is left out may be no class.
  const Tensor classes = flatten(where(counts, y, 0), 0);
  const Tensor own = index_select(cast(weight.detach().to(y.device()), DType::f64), 0, classes);
  return sum(own * cast(flatten(counts, 0), DType::f64)).item<double>();
}

namespace {

template <class Loss>
std::optional<TargetCounts> counts_of_class(
    const std::function<Tensor(const Tensor&, const Tensor&)>& loss) {
  const Loss* const known = loss.target<Loss>();
  if (known == nullptr || known->reduction != Reduction::mean) return std::nullopt;
  return TargetCounts{known->ignore_index, known->weight};
}

}  // namespace

std::optional<TargetCounts> counts_of(
    const std::function<Tensor(const Tensor& output, const Tensor& y)>& loss) {
  if (auto found = counts_of_class<nn::CrossEntropyLoss>(loss)) return found;
  return counts_of_class<nn::NLLLoss>(loss);
}

}  // namespace peal::launch
