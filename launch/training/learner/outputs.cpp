// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/ops.h>
#include <peal/launch/training/learner/outputs.h>
#include <peal/nn/loss.h>

#include <cstdint>

namespace peal::launch {
namespace {

Tensor as_it_is(const Tensor& x) { return x; }

// Along the classes.
Tensor likeliest(const Tensor& x) { return argmax(x, x.dim() > 1 ? 1 : 0); }

// Undefined where the loss is of another class.
template <class Loss>
Tensor unreduced(const Loop::LossFunction& loss, const Tensor& output, const Tensor& y) {
  const Loss* const known = loss.target<Loss>();
  if (known == nullptr) return {};
  Loss each = *known;
  each.reduction = Reduction::none;
  const Tensor losses = each(output, y);
  return losses.dim() > 1 ? mean(flatten(losses, 1), {1}) : losses;
}

template <class... Losses>
Tensor first_unreduced(const Loop::LossFunction& loss, const Tensor& output, const Tensor& y) {
  Tensor losses;
  // The first that knows it ends the search.
  (void)((losses = unreduced<Losses>(loss, output, y), losses.defined()) || ...);
  return losses;
}

}  // namespace

OutputReading reading_of(const Loop::LossFunction& loss) {
  if (loss.target<nn::CrossEntropyLoss>() != nullptr) {
    return {"softmax", [](const Tensor& x) { return softmax(x, x.dim() > 1 ? 1 : 0); }, likeliest};
  }
  if (loss.target<nn::NLLLoss>() != nullptr) {
    return {"exp", [](const Tensor& x) { return exp(x); }, likeliest};
  }
  if (loss.target<nn::BCEWithLogitsLoss>() != nullptr) {
    return {"sigmoid", [](const Tensor& x) { return sigmoid(x); },
            [](const Tensor& x) { return gt(x, 0.5); }};
  }
  return {"none", as_it_is, as_it_is};
}

Tensor loss_of_each(const Loop::LossFunction& loss, const Tensor& output, const Tensor& y) {
  const Tensor quick =
      first_unreduced<nn::CrossEntropyLoss, nn::NLLLoss, nn::BCEWithLogitsLoss, nn::MSELoss,
                      nn::L1Loss, nn::SmoothL1Loss, nn::HuberLoss>(loss, output, y);
  if (quick.defined()) return quick;
  Tensors each;
  for (std::int64_t row = 0; row < output.size(0); ++row) {
    const Tensor one = loss(narrow(output, 0, row, 1), narrow(y, 0, row, 1));
    PEAL_CHECK(one.numel() == 1, "[launch] learner: the loss of a sample has ", one.numel(),
               " elements; expected one");
    each.push_back(reshape(one, {1}));
  }
  return cat(each);
}

}  // namespace peal::launch
