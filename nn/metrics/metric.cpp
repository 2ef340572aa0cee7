// SPDX-License-Identifier: Apache-2.0
#include <peal/nn/metrics/metric.h>

#include <cstring>
#include <string>

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

std::vector<std::vector<double>> Metric::gather(const comm::ProcessGroup& group) const {
  const std::string mine(reinterpret_cast<const char*>(sums_.data()),
                         sums_.size() * sizeof(double));
  std::vector<std::vector<double>> all;
  for (const std::string& each : group.all_gather_object(mine)) {
    std::memcpy(all.emplace_back(each.size() / sizeof(double)).data(), each.data(), each.size());
  }
  return all;
}

}  // namespace peal::nn
