// SPDX-License-Identifier: Apache-2.0
#include <peal/nn/metrics/metric.h>

namespace peal::nn {

void Metric::update(const Tensor& output, const Tensor& target) {
  const NoGrad guard;
  add(output, target, sums_);
}

std::vector<double> Metric::over(const comm::ProcessGroup& group) const {
  const Tensor sums = Tensor::from(sums_, {std::ssize(sums_)}, Device{});
  group.all_reduce(sums, comm::ReduceOp::sum, {"metric"}).wait();
  return sums.to_vector<double>();
}

}  // namespace peal::nn
