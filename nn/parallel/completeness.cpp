// SPDX-License-Identifier: Apache-2.0
// Completeness: when a parameter's gradient is whole. It may come in several parts, or not at all.
#include <peal/autograd/core/error.h>
#include <peal/autograd/grad_slot.h>
#include <peal/nn/parallel/any_rank.h>
#include <peal/nn/parallel/fail_everywhere.h>
#include <peal/nn/parallel/reducer.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace peal::nn {

// What this backward will not reach, as far as that is known. In the first step nothing is taken
// for unused that may lie in a recomputed segment.
void Reducer::expect_unused(std::size_t first) {
  const bool counted = options_.static_graph && !expected_.empty();
  if (!counted && (options_.static_graph || !options_.find_unused_parameters)) return;
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    if (bucket_of_[p] == nowhere || p == first || came_[p] != Came::nothing) continue;
    if (counted) {
      if (expected_[p] == 0) stand_in(p);
    } else if (parameters_[p].second.grad_slot().expected == 0) {
      came_[p] = Came::unseen;
      if (learnt_ && !hidden_[p]) stand_in(p);
    }
  }
}

// A bucket that is sent before a layer's collective on one rank is so on all. Where they differ in
// when a gradient of it is complete, it is sent when backward has visited everything.
void Reducer::hold_buckets(std::size_t first, std::string_view layer) {
  held_.clear();
  const bool alike = !options_.static_graph && !options_.find_unused_parameters;
  if (!layers_meet_ || alike) return;
  if (!foreseen_) {
    PEAL_CHECK(!captured_,
               "[ddp] where buckets are sent, among the collectives of layers that have their own, "
               "is agreed on in a call, which a captured step does without; call the step as it is "
               "captured (in train() alike) before the capture");
    agree_when(first, layer.empty() ? step_ : concat(step_, ", before ", layer));
  }
  for (const std::size_t p : disputed_) {
    ++flights_[bucket_of_[p]].waiting;
    held_.push_back(bucket_of_[p]);
  }
  // What was foreseen as the last step ended is of this one alone, which may end otherwise.
  if (!captured_) foreseen_ = settled_;
}

// Of each parameter a bit for each time at which a rank has its gradient: when backward begins, as
// the graph shows it, or when backward is over, for all that this rank knows. The last is no time
// of its own where a recomputed segment may still bring the gradient: then all hold its bucket.
// With static_graph these are the same in each step, once a rank has had its first.
void Reducer::agree_when(std::size_t first, std::string_view where) {
  constexpr std::size_t times = 3;
  const std::size_t count = parameters_.size();
  const bool is_static = options_.static_graph, knows = !first_of_static();
  std::vector<bool> mine(times * count + 1, false);
  for (std::size_t p = 0; p < count && (is_static || !following_); ++p) {
    if (bucket_of_[p] == nowhere) continue;
    const bool begins = is_static ? knows && expected_[p] == 0 : came_[p] == Came::zeros;
    const bool ends = is_static ? !knows : came_[p] == Came::unseen && p != first;
    mine[times * p + (begins ? 0 : ends ? 2 : 1)] = true;
  }
  mine[times * count] = !knows;  // what all know for good needs all
  text_.assign(where).append(", when gradients come");
  const std::vector<bool> any = any_rank(group_, mine, {text_, tag_of(plan_.size() + 2)});
  disputed_.clear();
  for (std::size_t p = 0; p < count; ++p) {
    const bool may_come = any[times * p + 2] && !options_.static_graph;
    const int several = any[times * p] + any[times * p + 1] + any[times * p + 2];
    if (may_come || several > 1) disputed_.push_back(p);
  }
  foreseen_ = is_static;
  settled_ = is_static && !any[times * count];
}

void Reducer::stand_in(std::size_t parameter) {
  if (!parameters_[parameter].second.grad().defined()) left_.forget(parameter);
  unused_.stand_in(parameter, plan_[bucket_of_[parameter]].dtype);
  came_[parameter] = Came::zeros;
  --flights_[bucket_of_[parameter]].waiting;
}

// Whether the gradient is complete by this part of it.
bool Reducer::counts(std::size_t parameter, std::size_t bucket) {
  const std::int64_t part = ++parts_[parameter];
  if (options_.static_graph && !expected_.empty()) {
    if (part > expected_[parameter]) fail_part(parameter, bucket);
    return part == expected_[parameter];
  }
  const Came before = came_[parameter];
  if (before == Came::unseen || before == Came::zeros) hidden_[parameter] = true;
  if (before == Came::nothing || before == Came::unseen) return true;
  // Another part is added where the bucket still waits.
  if (bucket < next_) fail_part(parameter, bucket);
  return false;
}

void Reducer::fail_part(std::size_t parameter, std::size_t bucket) const {
  const std::string& name = parameters_[parameter].first;
  if (options_.static_graph && !expected_.empty()) {
    fail_everywhere(
        group_, concat(step_, ": ", name, " got part ", parts_[parameter], " of its gradient, and ",
                       expected_[parameter],
                       " in the first step: with static_graph each step is to be as that; without "
                       "it, find_unused_parameters takes steps that differ"));
  }
  fail_everywhere(
      group_,
      concat(
          name, " got another part of its gradient after ", buckets_->name(bucket),
          came_[parameter] == Came::zeros
              ? " was sent: the graph of the loss had not shown it, as it is used in a recomputed "
                "segment alone, for the first time in this step. Set static_graph where every "
                "step is alike; or run this backward under "
              : " was sent: it is used in several recomputed segments, or in one "
                "and outside of it. Recompute all its uses in one segment; set static_graph "
                "where every step is alike; or run this backward under ",
          "no_sync(), and average the gradients afterwards: all_reduce(parameter.grad(), "
          "ReduceOp::avg)"));
}

void Reducer::complete_rest() {
  check_missing();
  for (std::size_t p = 0; p < came_.size(); ++p) {
    if (came_[p] == Came::nothing || came_[p] == Came::unseen) stand_in(p);
  }
  for (const std::size_t bucket : held_) --flights_[bucket].waiting;
  held_.clear();
  launch_ready();
  note_hidden();
  if (first_of_static()) expected_ = parts_;
  learnt_ = true;
}

// By all ranks, in the step under way.
bool Reducer::may_be_unused(std::size_t bucket) const {
  const auto& entries = plan_[bucket].entries;
  return agrees_unused() || std::any_of(entries.begin(), entries.end(), [&](const auto& entry) {
           return unused_.nowhere(static_cast<std::size_t>(entry.parameter));
         });
}

void Reducer::settle_unused() {
  if (agrees_unused()) {
    // With static_graph each rank's first counts, which may come later than others'.
    agreed_ = !unused_.agree(tag_of(plan_.size()), first_of_static());
  }
  const bool unsettled = options_.static_graph && layers_meet_ && !settled_;
  if (unsettled && !captured_) agree_when(nowhere, step_);
  const std::size_t stranger = unused_.surprise();
  if (stranger < parameters_.size()) {
    fail_everywhere(group_, concat(step_, ": ", parameters_[stranger].first,
                                   " was used, under no_sync(), and by no rank in its first step: "
                                   "with static_graph each step is to be as that"));
  }
  for (const std::size_t p : unused_.settle()) {
    const GradBucket& bucket = (*buckets_)[bucket_of_[p]];
    if (!bucket.taken_back) continue;
    const auto& entries = plan_[bucket_of_[p]].entries;
    const auto at = std::find_if(entries.begin(), entries.end(), [&](const auto& entry) {
      return static_cast<std::size_t>(entry.parameter) == p;
    });
    bucket.taken_back(static_cast<std::size_t>(at - entries.begin()));
  }
  for (std::size_t b = 0; b < buckets_->size(); ++b) (*buckets_)[b].taken_back = nullptr;
}

}  // namespace peal::nn
