// SPDX-License-Identifier: Apache-2.0
// Exchange: the plan that gradients travel by, and parameters that join or leave it. What is there
// of gradients moves along.
#include <peal/autograd/core/error.h>
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/tape.h>
#include <peal/nn/parallel/fail_everywhere.h>
#include <peal/nn/parallel/reducer.h>

#include <algorithm>
#include <utility>

namespace peal::nn {

std::vector<std::size_t> Reducer::buckets_by_parameter(std::size_t parameters,
                                                       const std::vector<Bucket>& plan) {
  std::vector<std::size_t> bucket_of(parameters, nowhere);
  for (std::size_t b = 0; b < plan.size(); ++b) {
    for (const auto& entry : plan[b].entries) {
      bucket_of[static_cast<std::size_t>(entry.parameter)] = b;
    }
  }
  return bucket_of;
}

// What is there of gradients moves home, and from there into the new buckets.
void Reducer::exchange(std::vector<Bucket> plan) {
  check_whole();
  try {
    buckets_->give_back();
    buckets_.reset();
    // Memory of a device goes back when its queues are empty: nobody fills them before all have
    // done that, as ranks may share a device.
    group_.barrier().wait();
    plan_ = std::move(plan);
    bucket_of_ = buckets_by_parameter(parameters_.size(), plan_);
    flights_.assign(plan_.size(), {});
    came_.assign(parameters_.size(), Came::all);
    buckets_.emplace(parameters_, plan_, group_, complete_);
    watch_left();
  } catch (...) {
    buckets_.reset();  // and check_whole() finds none
    rethrow_everywhere(group_, "the plan of buckets could not be exchanged");
  }
}

void Reducer::check_whole() const {
  PEAL_CHECK(buckets_.has_value(), "[ddp] rank ", group_.global_rank(group_.rank()),
             ": this wrapper has had no buckets since an exchange of its plan failed, and averages "
             "nothing; wrap the model again, over another group");
}

// Its gradients come to this reducer.
bool Reducer::has(const Tensor& parameter) const {
  const std::size_t place = place_of(parameter);
  if (place != nowhere && bucket_of_[place] != nowhere) return true;
  return std::any_of(watched_.begin(), watched_.end(),
                     [&](const Tensor& other) { return other.same_as(parameter); });
}

// What earlier steps have taught of unused parameters is of others.
void Reducer::exchange(NamedTensors parameters, std::vector<Bucket> plan) {
  unwatch();
  newcomers_.clear();
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const std::size_t before = place_of(parameters[p].second);
    if (before == nowhere || bucket_of_[before] == nowhere) newcomers_.push_back(p);
  }
  parameters_ = std::move(parameters);
  unused_.exchange(parameters_);
  for (const std::size_t p : newcomers_) {
    const GradSlot& slot = parameters_[p].second.grad_slot();
    if (slot.defined() && slot.completed_in() > before_step_) unused_.note_use(p);
  }
  parts_.assign(parameters_.size(), 0);
  hidden_.assign(parameters_.size(), false);
  arrived_.assign(parameters_.size(), 0);
  expected_.clear();
  agreed_ = learnt_ = foreseen_ = settled_ = false;
  exchange(std::move(plan));
}

std::size_t Reducer::place_of(const Tensor& parameter) const {
  const auto found = std::find_if(parameters_.begin(), parameters_.end(),
                                  [&](const auto& own) { return own.second.same_as(parameter); });
  return found == parameters_.end() ? nowhere
                                    : static_cast<std::size_t>(found - parameters_.begin());
}

void Reducer::watch(const Tensor& stranger) {
  if (stranger.grad_slot().has_final_hook()) return;  // is watched, or another wrapper's
  const std::size_t number = parameters_.size() + watched_.size();
  watched_.push_back(stranger);
  stranger.grad_slot().set_final_hook(
      [&complete = complete_, number](const Tensor&) { complete(number); });
}

void Reducer::unwatch() {
  for (const Tensor& stranger : watched_) stranger.grad_slot().remove_final_hook();
  watched_.clear();
}

// Of parameters that the reducer has only now, gradients of this backward may be there already, as
// nothing told of them. Those of earlier ones, from before a freeze perhaps, are none of it.
void Reducer::take_complete(std::size_t first) {
  for (const std::size_t p : newcomers_) {
    if (bucket_of_[p] == nowhere || p == first) continue;
    const GradSlot& slot = parameters_[p].second.grad_slot();
    if (slot.expected > 0 || slot.completed_in() != backward_number() || !slot.defined()) continue;
    unused_.note_use(p);
    parts_[p] = 1;
    came_[p] = Came::all;
    --flights_[bucket_of_[p]].waiting;
  }
}

std::vector<int> Reducer::arrival() const {
  std::vector<int> order;
  for (std::size_t p = 0; p < arrived_.size(); ++p) {
    if (arrived_[p] != 0) order.push_back(static_cast<int>(p));
  }
  std::sort(order.begin(), order.end(), [this](int a, int b) {
    return arrived_[static_cast<std::size_t>(a)] < arrived_[static_cast<std::size_t>(b)];
  });
  return order;
}

}  // namespace peal::nn
