// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/gradients.h>
#include <peal/nn/parallel/clip_over_ranks.h>

#include <cmath>

namespace peal::nn {

void check_clipping(double max_norm, double norm_type) {
  PEAL_CHECK(max_norm >= 0 && norm_type >= 1,
             "clip_grad_norm_: expected max_norm >= 0 and norm_type >= 1, got ", max_norm, " and ",
             norm_type);
}

double clip_over_ranks(const Tensors& gradients, const comm::ProcessGroup& group, double max_norm,
                       double norm_type, const comm::Label& label, const Tensors& replicated,
                       const CutGradients& cut) {
  check_clipping(max_norm, norm_type);
  const NoGrad guard;
  const bool largest = std::isinf(norm_type);
  Tensors all;
  // On one rank what every rank has counts.
  const auto counted = [&](const Tensors& mine, const Tensors& of_every_rank) {
    Tensors list = mine;
    list.insert(list.end(), of_every_rank.begin(), of_every_rank.end());
    all.insert(all.end(), list.begin(), list.end());
    return power_sum_of(group.rank() == 0 ? list : mine, norm_type);
  };
  // Over a group everybody has the same afterwards.
  const auto together = [&](double own, const comm::ProcessGroup& over, const comm::Label& what) {
    const Tensor sum = Tensor::scalar(own, Device{});
    over.all_reduce(sum, largest ? comm::ReduceOp::max : comm::ReduceOp::sum, what).wait();
    return sum.item<double>();
  };
  double sum = counted(gradients, replicated);
  if (cut.group) {  // first, as other ranks of `group` may have nothing that is cut
    const double parts = together(counted(cut.gradients, cut.replicated), cut.group, label.text);
    const bool stays = sum > parts || std::isnan(sum);
    sum = !largest ? sum + parts : stays ? sum : parts;
  }
  sum = together(sum, group, label);
  const double norm = largest ? sum : std::pow(sum, 1 / norm_type);
  const double factor = max_norm / (norm + 1e-6);
  if (!(factor >= 1)) scale_all(all, factor);  // NaN, too
  return norm;
}

}  // namespace peal::nn
