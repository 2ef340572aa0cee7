// SPDX-License-Identifier: Apache-2.0
// Metrics: what a model is judged by, over the batches of an epoch and over ranks. Each is a few
// sums in f64, so that ranks add theirs up by one all_reduce and no part of a set counts for more
// because of where it was cut: numbers that count are exact, however samples are dealt. One that is
// no such sum says in over() how those of several ranks become one.
//
//   nn::Accuracy accuracy;
//   for (const auto& [x, y] : loader) accuracy.update(model(x), y);   // this rank's batches
//   fmt::print("{:.4f}\n", accuracy.value(group));                    // of all ranks
//
// Thread safety: one thread.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/comm/group/process_group.h>

#include <cstdint>
#include <vector>

namespace peal::nn {

class Metric {
 public:
  virtual ~Metric() = default;

  // One batch of outputs and what they ought to be; no gradient is recorded.
  void update(const Tensor& output, const Tensor& target);
  // Of all that came here since reset(); NaN where that is nothing.
  double value() const { return of(sums_); }
  // Of all that came on all ranks: the same number on each. Collective; leaves this rank's alone.
  double value(const comm::ProcessGroup& group) const { return of(over(group)); }
  void reset() { sums_.assign(begin_, 0); }

 protected:
  explicit Metric(std::size_t sums) : begin_(sums), sums_(sums, 0.0) {}
  // What one batch adds; sums may grow.
  virtual void add(const Tensor& output, const Tensor& target, std::vector<double>& sums) = 0;
  virtual double of(const std::vector<double>& sums) const = 0;
  // Of all ranks, the same on each: added up.
  virtual std::vector<double> over(const comm::ProcessGroup& group) const;
  // Every rank's, by rank; they may be of different lengths. Collective.
  std::vector<std::vector<double>> gather(const comm::ProcessGroup& group) const;
  const std::vector<double>& sums() const { return sums_; }

 private:
  std::size_t begin_;
  std::vector<double> sums_;
};

}  // namespace peal::nn
