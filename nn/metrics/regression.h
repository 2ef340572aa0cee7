// SPDX-License-Identifier: Apache-2.0
// Metrics of numbers: outputs and targets of one shape. Sums are in f64.
#pragma once

#include <peal/nn/metrics/metric.h>

#include <span>
#include <vector>

namespace peal::nn {

class RegressionMetric : public Metric {
 protected:
  RegressionMetric() : Metric(5) {}
  void add(const Tensor& output, const Tensor& target, std::vector<double>& sums) override;
  std::vector<double> over(const comm::ProcessGroup& group) const override;
  // What sums hold: of output - target how many, the sums of absolutes and squares; of targets the
  // mean, and the sum of the squares of what they are away from it, merged as Chan, Golub and
  // LeVeque (1979) do: of large targets that differ little, sums of squares would keep nothing.
  enum Sum : std::uint8_t { count, absolute, squared, mean, spread };
  static void merge(std::vector<double>& sums, std::span<const double> more);
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
// Where targets do not differ, 1 if all are met, else 0 (as scikit-learn and torchmetrics say).
class R2Score : public RegressionMetric {
 protected:
  double of(const std::vector<double>& sums) const override;
};

}  // namespace peal::nn
