// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/index.h>
#include <peal/autograd/ops/masked.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/pointwise.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/shape.h>
#include <peal/nn/parallel/tensor/cross_entropy.h>
#include <peal/nn/parallel/tensor/regions.h>

#include <limits>

namespace peal::nn {
namespace {

constexpr std::string_view loss_name = "vocab_parallel_cross_entropy";

void check_loss(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options) {
  Shape rows;
  for (int d = 0; d + 1 < logits.dim(); ++d) rows.push_back(logits.size(d));
  PEAL_CHECK(logits.dim() >= 1 && target.shape() == rows && target.dtype() == DType::i64, loss_name,
             ": expected logits [..., classes of this rank] and a target [...] of i64, got ",
             logits.shape(), " and ", target.dtype(), " ", target.shape());
  PEAL_CHECK(!options.weight.defined(), loss_name, ": a weight of classes is not supported");
  PEAL_CHECK(options.reduction != Reduction::batchmean, loss_name,
             ": expected the reduction none, mean or sum, got batchmean");
  PEAL_CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1, loss_name,
             ": label_smoothing must be in [0, 1], got ", options.label_smoothing);
}

// The same on all ranks, for each sees all classes.
void check_classes(const Tensor& target, const Tensor& ignored, std::int64_t classes) {
  if (target.numel() == 0) return;
  const Tensor seen = masked_fill(target, ignored, 0);
  const std::int64_t low = min(seen).item<std::int64_t>(), high = max(seen).item<std::int64_t>();
  PEAL_CHECK(low >= 0 && high < classes, loss_name, ": target ", low < 0 ? low : high,
             " is not one of ", classes, " classes");
}

// Of a row, of all ranks. No gradient goes through it.
Tensor largest_of(const Tensor& x, const comm::ProcessGroup& group) {
  const NoGrad guard;
  const Tensor largest = amax(x.detach(), -1, true);
  group.all_reduce(largest.view(), comm::ReduceOp::max, loss_name).wait();
  return largest;
}

}  // namespace

Tensor vocab_parallel_cross_entropy(const Tensor& logits, const Tensor& target,
                                    const comm::ProcessGroup& group,
                                    const CrossEntropyOptions& options,
                                    std::optional<std::int64_t> classes) {
  check_loss(logits, target, options);
  const std::int64_t share = logits.size(-1), first = share * group.rank(),
                     all = share * group.world(), count = classes.value_or(all);
  PEAL_CHECK(count >= 1 && count <= all, loss_name, ": expected from 1 to ", all,
             " classes, of which each rank has the logits of ", share, ", got ", count);
  const Tensor ignored = target == options.ignore_index;
  check_classes(target, ignored, count);
  // Ignored rows may hold what is not finite.
  const Tensor given = is_low_precision(logits.dtype()) ? cast(logits, DType::f32) : logits;
  Tensor x = masked_fill(given, unsqueeze(ignored, -1), 0);
  Tensor padding;  // of this rank's columns, those that are no class
  if (count < all) {
    padding = arange(share, DType::i64, logits.device()) >= count - first;
    x = masked_fill(x, padding, -std::numeric_limits<double>::infinity());
  }
  const Tensor z = x - largest_of(x, group);
  const Tensor outside = (target < first) | (target >= first + share);
  const Tensor own = unsqueeze(masked_fill(target - first, outside, 0), -1);
  const Tensor picked = masked_fill(squeeze(gather(z, -1, own), -1), outside, 0);
  const Tensor sums = reduce_from_tensor_parallel_region(
      stack({sum(exp(z), -1), picked, sum(padding.defined() ? masked_fill(z, padding, 0) : z, -1)},
            0),
      group, loss_name);
  const Tensor log_sum = log(select(sums, 0, 0));
  const double smooth = options.label_smoothing;
  Tensor loss = log_sum - select(sums, 0, 1) * (1 - smooth);
  if (smooth > 0) loss = loss - select(sums, 0, 2) * (smooth / static_cast<double>(count));
  loss = masked_fill(loss, ignored, 0);
  if (options.reduction == Reduction::none) return loss;
  const Tensor total = sum(loss);
  return options.reduction == Reduction::sum
             ? total
             : total / cast(sum(logical_not(ignored)), total.dtype());
}

}  // namespace peal::nn
