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
                       double norm_type, const comm::Label& label, const Tensors& replicated) {
  check_clipping(max_norm, norm_type);
  const NoGrad guard;
  const bool largest = std::isinf(norm_type);
  Tensors all = gradients;
  all.insert(all.end(), replicated.begin(), replicated.end());
  const bool counts = group.rank() == 0;  // what every rank has
  const Tensor sum = Tensor::scalar(power_sum_of(counts ? all : gradients, norm_type), Device{});
  group.all_reduce(sum, largest ? comm::ReduceOp::max : comm::ReduceOp::sum, label).wait();
  const double norm = largest ? sum.item<double>() : std::pow(sum.item<double>(), 1 / norm_type);
  const double factor = max_norm / (norm + 1e-6);
  if (!(factor >= 1)) scale_all(all, factor);  // NaN, too
  return norm;
}

}  // namespace peal::nn
