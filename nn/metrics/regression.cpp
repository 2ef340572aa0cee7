// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/choose.h>
#include <peal/nn/metrics/regression.h>

#include <array>
#include <cmath>
#include <limits>

namespace peal::nn {

void RegressionMetric::add(const Tensor& output, const Tensor& target, std::vector<double>& sums) {
  PEAL_CHECK(output.shape() == target.shape(), "metric: expected a target of shape ",
             output.shape(), ", got ", target.shape());
  const auto y = cast(output, DType::f64).to_vector<double>();
  const auto wanted = cast(target, DType::f64).to_vector<double>();
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double away = y[i] - wanted[i];
    merge(sums, std::array{1.0, std::abs(away), away * away, wanted[i], 0.0});
  }
}

void RegressionMetric::merge(std::vector<double>& sums, std::span<const double> more) {
  if (more[count] == 0) return;
  const double apart = more[mean] - sums[mean], all = sums[count] + more[count];
  sums[spread] += more[spread] + apart * apart * (sums[count] * more[count] / all);
  sums[mean] += apart * (more[count] / all);
  sums[count] = all;
  sums[absolute] += more[absolute];
  sums[squared] += more[squared];
}

std::vector<double> RegressionMetric::over(const comm::ProcessGroup& group) const {
  std::vector<double> all(sums().size(), 0);
  for (const std::vector<double>& each : gather(group)) merge(all, each);
  return all;
}

double MeanSquaredError::of(const std::vector<double>& sums) const {
  return sums[squared] / sums[count];
}
double RMSE::of(const std::vector<double>& sums) const {
  return std::sqrt(MeanSquaredError::of(sums));
}
double MeanAbsoluteError::of(const std::vector<double>& sums) const {
  return sums[absolute] / sums[count];
}
double R2Score::of(const std::vector<double>& sums) const {
  if (sums[count] < 2) return std::numeric_limits<double>::quiet_NaN();
  if (sums[spread] == 0) return sums[squared] == 0 ? 1 : 0;
  return 1 - sums[squared] / sums[spread];
}

}  // namespace peal::nn
