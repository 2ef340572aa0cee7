// SPDX-License-Identifier: Apache-2.0
// Flights: buckets are sent in plan order as they fill, waited for when backward has visited
// everything, and divided by what counts.
#include <peal/autograd/core/trace.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/tape.h>
#include <peal/nn/parallel/fail_everywhere.h>
#include <peal/nn/parallel/missing.h>
#include <peal/nn/parallel/reducer.h>
#include <peal/nn/parallel/step_clock.h>

#include <chrono>
#include <memory>

namespace peal::nn {

void Reducer::launch_ready() {
  if (first_of_static() && backward_ != 0) return;  // another part may come
  while (next_ < flights_.size() && flights_[next_].waiting == 0) launch();
}

void Reducer::launch() {
  const std::size_t now = next_++;  // before a hook that may send and then throw
  text_.assign(step_).append(", ").append(buckets_->name(now));
  const comm::Label label(text_, tag_of(now));
  announce(group_, {.what = Announcement::What::bucket, .wrapper = tag_});
  if (step_clock_) step_clock_->sends(now, label);
  if (plan_[now].owner != everyone) {
    flights_[now].work = reduce_to_owner(now, label);
    return;
  }
  if (!hook_) {
    flights_[now].work = group_.all_reduce(buckets_->sent(now), comm::ReduceOp::avg, label);
    return;
  }
  GradBucket& bucket = (*buckets_)[now];
  bucket.label = label;
  bucket.averaged = Averaged::over_all;
  bucket.wrapper = self_;
  bucket.factor = [this] { return weights_.factor_now(divisor_); };
  bucket.may_be_unused = may_be_unused(now);
  bucket.taken_back = nullptr;  // a step that failed may have left it
  const std::shared_ptr<void> reset(nullptr, [&](void*) {
    bucket.label = {};
    bucket.factor = nullptr;
  });
  flights_[now].work = hook_(bucket);
  if (step_clock_ && bucket.buffer.device() == Device{}) {
    step_clock_->sent_by_hook(now, flights_[now].work);
  }
}

// Averages the bucket at its owner. Others give it up, each as soon as it was sent.
comm::Work Reducer::reduce_to_owner(std::size_t now, const comm::Label& label) {
  for (std::size_t b = 0; b < now; ++b) {
    const bool there = buckets_->is_elsewhere(b) && (*buckets_)[b].buffer.defined();
    if (there && flights_[b].work.test()) buckets_->release(b);
  }
  if (buckets_->is_elsewhere(now)) {
    buckets_->collect(now);
  } else {
    check_not_on_top(now);
  }
  return group_.reduce((*buckets_)[now].buffer, plan_[now].owner, comm::ReduceOp::avg, label);
}

// The others have given up their parts of what an earlier step left, so what was added to it cannot
// be averaged apart.
void Reducer::check_not_on_top(std::size_t bucket) const {
  for (const auto& entry : plan_[bucket].entries) {
    const auto p = static_cast<std::size_t>(entry.parameter);
    if (!left_.has(p)) continue;
    fail_everywhere(group_, concat(step_, ": ", parameters_[p].first,
                                   " still has the gradient of an earlier step, which its owner "
                                   "alone keeps, and to which nothing can be averaged; call "
                                   "zero_grad() before, or run the backwards before the last one "
                                   "under no_sync()"));
  }
}

void Reducer::finish() {
  backward_ = 0;
  if (step_clock_) step_clock_->visited();
  complete_rest();
  announce(group_, {.what = Announcement::What::finish, .wrapper = tag_});
  close();
}

// All buckets are under way.
void Reducer::close() {
  comm::Work flag;
  const bool alone = flag_goes_alone();
  if (alone) {
    const comm::Label label("whether gradients are missing", tag_of(plan_.size() + 1));
    flag = group_.all_reduce(buckets_->tail(), comm::ReduceOp::avg, label);
  }
  const bool counted = buckets_->has_digits() && (!hook_ || alone);
  if (buckets_->has_digits() && !counted) weights_.send();  // nothing carries it
  {
    const TraceSpan span("wait for gradients", true);
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t b = 0; b < flights_.size(); ++b) {
      if (step_clock_) step_clock_->waits(b);
      flights_[b].work.wait();
    }
    flag.wait();
    if (step_clock_) step_clock_->waited();
    exposed_seconds_ +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  for (Flight& flight : flights_) flight.work = {};
  for (std::size_t b = 0; b < buckets_->size(); ++b) {
    if (buckets_->is_elsewhere(b)) buckets_->release(b);
  }
  const bool raised = buckets_->has_flag() && buckets_->flag_raised();
  const bool suspicion = any_suspicion();
  if (raised) {
    if (step_clock_) step_clock_->step_fails();
    buckets_->lower_flag();
    if (hook_ && !alone) fail_alone();
  }
  if (counted) weights_.take(buckets_->digits());
  weights_.check();
  if (raised || suspicion) compare_missing(group_, parameters_, missing(), step_, advice());
  scale();
  settle_unused();
  left_.note();
  shared_ = true;
  added_ = false;
  before_step_ = last_backward_number();
  if (step_clock_) step_clock_->step_ends();
  if (listener_.end) listener_.end();
}

// The average over the ranks becomes that over samples, or over the ranks that have any.
void Reducer::scale() {
  const bool weighted = weights_.is_open(), as_it_is = !weighted && divisor_ == group_.world();
  const double of_own = weights_.own_factor(), factor = weights_.factor(divisor_);
  for (std::size_t b = 0; b < buckets_->size(); ++b) {
    GradBucket& bucket = (*buckets_)[b];
    if (as_it_is || (!weighted && bucket.averaged == Averaged::not_at_all)) continue;
    if (!bucket.buffer.defined()) continue;  // another rank's
    if (bucket.averaged == Averaged::over_some) {
      fail_everywhere(group_, concat(step_,
                                     ": the hook averages over some of the ranks, which goes "
                                     "with neither backward(loss, samples) nor Join with "
                                     "divide_by_initial_world_size = false"));
    }
    const double by = bucket.averaged == Averaged::over_all ? factor : of_own;
    // A pass costs time; 1 it is where the ranks' batches are equal and a power of two.
    if (by != 1) mul_(bucket.buffer, by);
  }
}

}  // namespace peal::nn
