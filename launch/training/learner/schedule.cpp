// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/training/learner/schedule.h>

#include <cmath>
#include <numbers>
#include <utility>

namespace peal::launch {

Phase sched_cos(double start, double end) {
  return [=](double pct) {
    return start + (1 + std::cos(std::numbers::pi * (1 - pct))) * (end - start) / 2;
  };
}

Phase sched_exp(double start, double end) {
  return [=](double pct) { return start * std::pow(end / start, pct); };
}

Phase combine_scheds(std::vector<double> shares, std::vector<Phase> phases) {
  PEAL_CHECK(shares.size() == phases.size() && !shares.empty(),
             "[launch] learner: combine_scheds got ", shares.size(), " shares of ", phases.size(),
             " phases; it needs one for each");
  return [shares = std::move(shares), phases = std::move(phases)](double pct) {
    double begin = 0;
    for (std::size_t i = 0; i + 1 < phases.size(); ++i) {
      if (pct < begin + shares[i] - 1e-12) return phases[i]((pct - begin) / shares[i]);
      begin += shares[i];
    }
    return phases.back()(shares.back() == 0 ? 1 : (pct - begin) / shares.back());
  };
}

Phase combined_cos(double pct, double start, double middle, double end) {
  PEAL_CHECK(pct >= 0 && pct <= 1, "[launch] learner: pct_start is in [0, 1], got ", pct);
  return combine_scheds({pct, 1 - pct}, {sched_cos(start, middle), sched_cos(middle, end)});
}

Rates slice(double high) {
  Rates rates(high / 10, high);
  rates.tenth_ = true;
  return rates;
}

std::vector<double> Rates::of(std::size_t groups) const {
  std::vector<double> all(groups, low_);
  for (std::size_t g = 0; g < groups && !tenth_ && low_ != high_; ++g) {
    const double share = groups < 2 ? 1 : static_cast<double>(g) / static_cast<double>(groups - 1);
    all[g] = low_ * std::pow(high_ / low_, share);
  }
  if (groups > 0) all.back() = high_;
  return all;
}

void ParamScheduler::before_batch(Loop& loop) {
  if (loop.training) set(loop, loop.pct_train());
}

void ParamScheduler::set(Loop& loop, double pct) {
  nn::Optimizer& optimizer = *loop.optimizer;
  for (const auto& [name, phases] : settings_) {
    std::string setting = name;
    if (name == "mom") setting = optimizer.has_setting("beta1") ? "beta1" : "momentum";
    if (!optimizer.has_setting(setting)) continue;
    for (std::size_t g = 0; g < optimizer.group_count(); ++g) {
      optimizer.set_setting(setting, phases[phases.size() == 1 ? 0 : g](pct), g);
    }
    recorder_.settings[name].push_back(optimizer.setting(setting, optimizer.group_count() - 1));
  }
}

}  // namespace peal::launch
