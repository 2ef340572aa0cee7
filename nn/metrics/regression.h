// SPDX-License-Identifier: Apache-2.0
// Metrics of numbers: outputs and targets of one shape. Sums are in f64.
#pragma once

#include <peal/nn/metrics/metric.h>

namespace peal::nn {

class RegressionMetric : public Metric {
 protected:
  RegressionMetric() : Metric(5) {}
  void add(const Tensor& output, const Tensor& target, std::vector<double>& sums) override;
  // What sums hold.
  enum Sum : std::uint8_t { count, absolute, squared, targets, squared_targets };
};

// The mean of (output - target)^2, its root, and the mean of |output - target|.
class MeanSquaredError : public RegressionMetric {
 protected:
  double of(const std::vector<double>& sums) const override;
};
class RMSE : public MeanSquaredError {
 protected:
  double of(const std::vector<double>& sums) const override;
};
class MeanAbsoluteError : public RegressionMetric {
 protected:
  double of(const std::vector<double>& sums) const override;
};

// 1 - the sum of (output - target)^2 over that of (target - its mean)^2; NaN of fewer than two.
class R2Score : public RegressionMetric {
 protected:
  double of(const std::vector<double>& sums) const override;
};

}  // namespace peal::nn
