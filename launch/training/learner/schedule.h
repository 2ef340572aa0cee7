// SPDX-License-Identifier: Apache-2.0
// Schedules of fastai's fits: a setting as a function of the share of the training that is over,
// and the callback that sets it before each batch. Thread safety: values; the rank's thread.
#pragma once

#include <peal/launch/training/learner/recorder.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace peal::launch {

using Phase = std::function<double(double pct)>;
// Half a cosine from one value to another, both in the setting's unit.
Phase sched_cos(double start, double end);
// start (end / start)^pct. Values are in the setting's unit, above 0.
Phase sched_exp(double start, double end);
// One after another, each over its share of the whole; shares add up to 1. Error where there is not
// one for each.
Phase combine_scheds(std::vector<double> shares, std::vector<Phase> phases);
// start to middle over pct, then to end, by cosines. `pct` is a share; Error outside of [0, 1].
Phase combined_cos(double pct, double start, double middle, double end);

// One rate for all layer groups, or by group: rates(lo, hi) is geometric from the first group to
// the last (fastai: slice(lo, hi)); slice(hi), hi for the last and a tenth for the others.
class Rates {
 public:
  // The rate of all groups.
  Rates(double all) : low_(all), high_(all) {}  // NOLINT: a conversion
  // A rate of the first group and of the last; and those of all groups, by number.
  Rates(double low, double high) : low_(low), high_(high) {}
  std::vector<double> of(std::size_t groups) const;

 private:
  friend Rates slice(double high);
  double low_, high_;
  bool tenth_ = false;
};
// fastai's names for it: from low to high, and high / 10 for all but the last.
inline Rates slice(double low, double high) { return {low, high}; }
Rates slice(double high);

// Of "lr" one phase a group of the optimizer, or one for all; of "mom", which is beta1 or momentum,
// one for all.
class ParamScheduler : public Callback {
 public:
  // A phase gives the value at a share in [0, 1] of all batches. REQUIRES: the recorder outlives
  // it.
  ParamScheduler(std::map<std::string, std::vector<Phase>> settings, Recorder& recorder)
      : settings_(std::move(settings)), recorder_(recorder) {}
  int order() const override { return 60; }
  void before_batch(Loop& loop) override;

 protected:
  void set(Loop& loop, double pct);

 private:
  std::map<std::string, std::vector<Phase>> settings_;
  Recorder& recorder_;
};

}  // namespace peal::launch
