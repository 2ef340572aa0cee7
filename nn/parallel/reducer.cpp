// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/graph.h>
#include <peal/autograd/core/log.h>
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/tape.h>
#include <peal/nn/parallel/fail_everywhere.h>
#include <peal/nn/parallel/reducer.h>
#include <peal/nn/parallel/same_calls.h>
#include <peal/nn/parallel/step_clock.h>

#include <algorithm>
#include <utility>

namespace peal::nn {

Reducer::Reducer(NamedTensors parameters, std::vector<Bucket> plan, comm::ProcessGroup group,
                 std::uint64_t tag, const ReducerOptions& options)
    : parameters_(std::move(parameters)),
      plan_(std::move(plan)),
      bucket_of_(buckets_by_parameter(parameters_.size(), plan_)),
      group_(std::move(group)),
      tag_(tag),
      options_(options),
      flights_(plan_.size()),
      came_(parameters_.size(), Came::all),
      unused_(parameters_, group_),
      parts_(parameters_.size(), 0),
      hidden_(parameters_.size(), false),
      weights_(group_, tag),
      divisor_(group_.world()),
      before_step_(last_backward_number()),
      arrived_(parameters_.size(), 0),
      complete_([this](std::size_t parameter) { with_advice([&] { on_complete(parameter); }); }) {
  buckets_.emplace(parameters_, plan_, group_, complete_);
  watch_left();
}

// Of parameters that are this rank's alone.
void Reducer::watch_left() {
  std::vector<bool> own(parameters_.size(), false);
  for (const Bucket& bucket : plan_) {
    for (const auto& entry : bucket.entries) {
      own[static_cast<std::size_t>(entry.parameter)] = bucket.owner == group_.rank();
    }
  }
  left_.watch(parameters_, own);
}

Reducer::~Reducer() {
  unwatch();
  if (backward_ == 0 || next_ == 0 || captured_ || group_.poisoned()) return;
  log_warning("[ddp] rank ", group_.global_rank(group_.rank()), ": a wrapper goes with ", next_,
              " of ", flights_.size(), " buckets of ", step_,
              " in flight, which an exception has left; ranks that wait for the others will fail");
}

void Reducer::set_comm_hook(CommHook hook) {
  PEAL_CHECK(hook != nullptr, "[ddp] set_comm_hook: expected a hook, got none");
  PEAL_CHECK(backward_ == 0 || next_ == 0,
             "[ddp] set_comm_hook: a backward is under way, and has sent buckets");
  PEAL_CHECK(std::all_of(plan_.begin(), plan_.end(),
                         [](const Bucket& bucket) { return bucket.owner == everyone; }),
             "[ddp] set_comm_hook: gradients go to one owner each, and through no hook; use "
             "DistributedDataParallel for it");
  hook_ = std::move(hook);
  for (std::size_t b = 0; buckets_ && b < buckets_->size(); ++b) {
    (*buckets_)[b].averaged = Averaged::over_all;  // until it says otherwise
  }
}

void Reducer::set_clock(std::unique_ptr<StepClock> clock) { step_clock_ = std::move(clock); }

// An exception may end a backward when others already wait for it.
void Reducer::check_not_left() const {
  if (backward_ == 0 || next_ == 0 || captured_) return;
  fail_everywhere(
      group_, concat("an earlier backward was left by an exception after ", next_, " of ",
                     flights_.size(), " buckets were launched; the ranks cannot go on together"));
}

bool Reducer::awaits() const {
  if (!buckets_ || !synchronizing_) return false;
  if (backward_number() == 0 || backward_ == backward_number()) return false;
  if (came_first_.defined()) return true;
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    if (bucket_of_[p] != nowhere && parameters_[p].second.grad_slot().expected > 0) return true;
  }
  return std::any_of(watched_.begin(), watched_.end(),
                     [](const Tensor& stranger) { return stranger.grad_slot().expected > 0; });
}

void Reducer::begin_before(std::string_view layer) {
  if (weights_.others_weigh()) fail_shared_weights();
  const bool is_other = weights_.is_open() && !weights_.weighing();
  if (is_other && !came_first_.defined()) end_weights(nowhere);
  begin(layer);
}

// With the first gradient. The number that the parameter has then.
std::size_t Reducer::begin_all(std::size_t first) {
  const bool watched = first >= parameters_.size();
  came_first_ = watched ? watched_[first - parameters_.size()] : parameters_[first].second;
  const std::shared_ptr<void> over(nullptr, [this](void*) { came_first_ = {}; });
  // Which wrapper's gradient is the first may be another on other ranks.
  if (layers_meet_) call_before_layer(group_, {});
  if (backward_ != backward_number()) begin();
  return place_of(came_first_);
}

// `layer`: whose collective comes before the first gradient.
void Reducer::begin(std::string_view layer) {
  check_not_left();
  backward_ = backward_number();
  next_ = 0;
  following_ = false;  // an exception may have left a step that this rank followed
  captured_ = Graph::capturing() != nullptr;
  // Of a replay nobody here knows the number.
  if (captured_) {
    step_ = "a captured step";
    step_hash_ = 0;
    PEAL_CHECK(
        options_.static_graph ? !expected_.empty() : !options_.find_unused_parameters,
        "[ddp] which parameters are unused is decided on the host, which a captured step does "
        "without; use static_graph, and call the step before it is captured");
  } else {
    number_step();
  }
  PEAL_CHECK(
      !captured_ || std::all_of(plan_.begin(), plan_.end(),
                                [](const Bucket& b) { return b.owner == everyone; }),
      "[ddp] a step in which gradients go to one owner each, and are freed elsewhere, cannot "
      "lie in a captured graph");
  after_backward([this] { with_advice([this] { finish(); }); });
  announce(group_, place(Announcement::What::begin));
  prepare();
  const std::size_t first = came_first_.defined() ? place_of(came_first_) : nowhere;
  open();
  take_complete(first);
  ask_missing(first);
  expect_unused(first);
  hold_buckets(first, layer);
  launch_ready();  // what nobody uses, before any layer
}

void Reducer::prepare() {
  newcomers_.clear();
  if (listener_.prepare) listener_.prepare();
}

void Reducer::open() {
  if (step_clock_) step_clock_->step_begins(steps_, captured_, plan_, parameters_);
  next_ = 0;
  for (std::size_t b = 0; b < plan_.size(); ++b) {
    flights_[b].waiting = plan_[b].entries.size();
    for (const auto& entry : plan_[b].entries) {
      came_[static_cast<std::size_t>(entry.parameter)] = Came::nothing;
    }
  }
  std::fill(parts_.begin(), parts_.end(), 0);
  unused_.forget();
  std::fill(arrived_.begin(), arrived_.end(), 0);
  weights_.begin(buckets_->has_digits() ? buckets_->digits() : Tensor());
  if (listener_.begin) listener_.begin();
}

void Reducer::on_complete(std::size_t parameter) {
  if (weights_.others_weigh()) fail_shared_weights();
  if (backward_ != backward_number()) {
    if (weights_.is_open() && !weights_.weighing()) end_weights(parameter);
    if (synchronizing_) parameter = begin_all(parameter);
  }
  // Of a stranger that is none of the step's.
  if (parameter >= parameters_.size() || bucket_of_[parameter] == nowhere) return;
  unused_.note_use(parameter);
  if (!synchronizing_) return note_own(parameter);
  arrived_[parameter] = ++clock_;
  const std::size_t bucket = bucket_of_[parameter];
  if (counts(parameter, bucket)) {
    came_[parameter] = Came::all;
    --flights_[bucket].waiting;
    if (step_clock_) step_clock_->gradient(parameter, bucket, flights_[bucket].waiting == 0);
    launch_ready();
  }
  group_.progress();
}

}  // namespace peal::nn
