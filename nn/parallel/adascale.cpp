// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/stateful.h>
#include <peal/autograd/ops/gradients.h>
#include <peal/comm/group/agree.h>
#include <peal/nn/parallel/adascale.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace peal::nn {
namespace {

constexpr std::string_view who = "AdaScale";

// By parameter, from what the optimizer saves of its groups.
std::vector<std::size_t> groups_of(const Optimizer& optimizer) {
  std::vector<std::size_t> groups;
  const NamedTensors state = optimizer.local_state_dict();
  for (std::size_t group = 0; group < optimizer.group_count(); ++group) {
    const std::string key = concat("groups.", group, ".parameters");
    const auto found = std::ranges::find(state, key, [](const auto& each) { return each.first; });
    PEAL_CHECK(found != state.end(), who, ": the optimizer saves no ", key);
    groups.insert(groups.end(), static_cast<std::size_t>(found->second.item<std::int64_t>()),
                  group);
  }
  return groups;
}

}  // namespace

AdaScale::AdaScale(Optimizer& optimizer, comm::ProcessGroup group, const AdaScaleOptions& options)
    : optimizer_(optimizer),
      group_(std::move(group)),
      options_(options),
      seen_(std::make_shared<std::vector<Seen>>(optimizer.parameters().size())),
      averages_(optimizer.group_count()) {
  const std::int64_t accumulated = options_.num_gradients_to_accumulate;
  const double past = options_.smoothing.value_or(0);
  PEAL_CHECK(accumulated >= 1 && options_.scale >= 0 && past >= 0 && past < 1, who,
             ": expected num_gradients_to_accumulate of 1 or more, a scale of 0 or more and a "
             "smoothing from 0 to below 1, got ",
             accumulated, ", ", options_.scale, " and ", past);
  PEAL_CHECK(parts() > 1, who,
             ": one rank that accumulates one gradient has nothing to compare; give it a group of "
             "several ranks, or num_gradients_to_accumulate of 2 or more");
  scale_ = options_.scale > 0 ? options_.scale : static_cast<double>(parts());
  for (const Tensor& parameter : optimizer_.parameters()) {
    PEAL_CHECK(!parameter.storage()->is_piece(), who, ": expected whole parameters, got one of [",
               parameter.numel(), "], this rank's piece of a sharded parameter");
  }
  group_of_ = groups_of(optimizer_);
  for (std::size_t i = 0; i < seen_->size(); ++i) {
    hooks_.push_back(optimizer_.parameters()[i].register_hook([seen = seen_, i](const Tensor& g) {
      (*seen)[i].squares += power_sum_of({&g, 1}, 2);
      ++(*seen)[i].count;
    }));
  }
}

AdaScale::~AdaScale() {
  for (std::size_t i = 0; i < hooks_.size(); ++i) {
    optimizer_.parameters()[i].remove_hook(hooks_[i]);
  }
}

std::int64_t AdaScale::parts() const {
  return options_.num_gradients_to_accumulate * (group_ ? group_.world() : 1);
}

void AdaScale::agree() {
  if (!group_ || std::exchange(agreed_, true)) return;
  std::string text = concat("num_gradients_to_accumulate ", options_.num_gradients_to_accumulate,
                            "\nscale ", scale_, "\nsmoothing ", options_.smoothing.value_or(-1),
                            "\nis_scaled_loss ", options_.is_scaled_loss);
  for (const Average& each : averages_) {
    text += concat("\nvar ", each.var, ", sqr ", each.sqr, ", weight ", each.weight);
  }
  comm::agree(group_, concat("[ddp] ", who), text,
              "give it the same options, and load the same state, on every rank");
}

double AdaScale::gain_of(double var, double sqr) const {
  return (var + sqr) / (var / scale_ + sqr);
}

double AdaScale::gain(std::size_t group) const {
  PEAL_CHECK(group < averages_.size(), who, ": expected a group below ", averages_.size(), ", got ",
             group);
  const Average& each = averages_[group];
  return each.weight == 0 ? 1 : gain_of(each.var / each.weight, each.sqr / each.weight);
}

double AdaScale::gain() const {
  double var = 0, sqr = 0;
  for (const Average& each : averages_) {
    if (each.weight == 0) continue;
    var += each.var / each.weight;
    sqr += each.sqr / each.weight;
  }
  return var == 0 ? 1 : gain_of(var, sqr);
}

// What a rank alone finds wrong goes to all with the sums.
std::vector<double> AdaScale::measure() {
  const std::int64_t expected = options_.num_gradients_to_accumulate;
  const double factor = options_.is_scaled_loss ? static_cast<double>(expected) : 1;
  std::vector<double> sums(averages_.size() + 1);
  std::string fault;
  for (std::size_t i = 0; i < seen_->size(); ++i) {
    const Seen seen = std::exchange((*seen_)[i], {});
    sums[group_of_[i]] += factor * factor * seen.squares;
    if (!fault.empty() || seen.count == 0) continue;
    const bool gone = !optimizer_.parameters()[i].grad().defined();
    if (seen.count == expected && !gone) continue;
    fault = concat("parameter ", optimizer_.parameter_names()[i], " had ", seen.count,
                   " gradients since the last step",
                   gone ? " and has none now (ShardedDDP leaves it with its owner, and zero_grad() "
                          "is to be called here)"
                        : "");
  }
  sums.back() = fault.empty() ? 0 : 1;
  if (group_) {
    const Tensor all = Tensor::from(sums, {static_cast<std::int64_t>(sums.size())});
    group_.all_reduce(all, comm::ReduceOp::sum, "AdaScale").wait();
    std::copy_n(all.data<double>(), sums.size(), sums.begin());
  }
  PEAL_CHECK(sums.back() == 0, who, ": ",
             fault.empty()
                 ? std::string("other ranks had another number of gradients, or lack some")
                 : concat("rank ", group_ ? group_.rank() : 0, ": ", fault),
             ", expected ", expected,
             " (num_gradients_to_accumulate), or none at all; layers that are recomputed in "
             "backward give theirs in parts");
  sums.pop_back();
  return sums;
}

std::vector<Tensor> AdaScale::gradients(std::size_t group) const {
  std::vector<Tensor> list;
  for (std::size_t i = 0; i < group_of_.size(); ++i) {
    const Tensor grad = optimizer_.parameters()[i].grad();
    if (group_of_[i] == group && grad.defined()) list.push_back(grad);
  }
  return list;
}

void AdaScale::take(std::size_t group, double squares) {
  const auto n = static_cast<double>(parts());
  const double of_mean = power_sum_of(gradients(group), 2);
  const double var = squares * (scale_ / n) / (n - 1) - of_mean * scale_ / (n - 1);
  const double sqr = of_mean - var / scale_;
  if (!std::isfinite(var) || !std::isfinite(sqr)) return;
  constexpr double least_var = 1e-6;
  const double past = options_.smoothing.value_or(std::max(1 - n / 1000, 0.0));
  Average& average = averages_[group];
  average.var = past * average.var + (1 - past) * std::max(var, least_var);
  average.sqr = past * average.sqr + (1 - past) * std::max(sqr, 0.0);
  average.weight = past * average.weight + (1 - past);
}

void AdaScale::step() {
  const NoGrad guard;
  agree();
  const std::vector<double> squares = measure();
  if (!options_.is_scaled_loss) {
    const double factor = 1 / static_cast<double>(options_.num_gradients_to_accumulate);
    for (std::size_t group = 0; group < squares.size(); ++group) {
      scale_all(gradients(group), factor);
    }
  }
  for (std::size_t group = 0; group < squares.size(); ++group) take(group, squares[group]);
  std::vector<double> rates;
  for (std::size_t group = 0; group < squares.size(); ++group) {
    rates.push_back(optimizer_.lr(group));
    optimizer_.set_lr(rates.back() * gain(group), group);
  }
  const auto restore = [&] {
    for (std::size_t group = 0; group < rates.size(); ++group) {
      optimizer_.set_lr(rates[group], group);
    }
  };
  try {
    optimizer_.step();
  } catch (...) {
    restore();
    throw;
  }
  restore();
}

void AdaScale::zero_grad() {
  std::ranges::fill(*seen_, Seen{});
  optimizer_.zero_grad();
}

NamedTensors AdaScale::state_dict() const {
  NamedTensors state;
  for (std::size_t group = 0; group < averages_.size(); ++group) {
    const Average& each = averages_[group];
    const auto add = [&](std::string_view name, double value) {
      state.emplace_back(concat("groups.", group, ".", name), Tensor::scalar(value, Device{}));
    };
    add("var", each.var);
    add("sqr", each.sqr);
    add("weight", each.weight);
  }
  return state;
}

void AdaScale::load_state_dict(const NamedTensors& state) {
  StateReader reader(who, state);
  std::vector<Average> averages;
  for (std::size_t group = 0; group < averages_.size(); ++group) {
    const auto number = [&](std::string_view name) {
      return reader.number<double>(concat("groups.", group, ".", name));
    };
    averages.push_back({number("var"), number("sqr"), number("weight")});
  }
  reader.finish();
  averages_ = std::move(averages);
  agreed_ = false;
}

}  // namespace peal::nn
