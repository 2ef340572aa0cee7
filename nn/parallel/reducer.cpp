// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/graph.h>
#include <peal/autograd/core/log.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/tape.h>
#include <peal/comm/schedule/mix.h>
#include <peal/nn/parallel/fail_everywhere.h>
#include <peal/nn/parallel/missing.h>
#include <peal/nn/parallel/reducer.h>
#include <peal/nn/parallel/same_calls.h>
#include <peal/nn/parallel/step_clock.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace peal::nn {

namespace {

constexpr std::size_t nowhere = ~std::size_t{0};

std::vector<std::size_t> buckets_by_parameter(std::size_t parameters,
                                              const std::vector<Bucket>& plan) {
  std::vector<std::size_t> bucket_of(parameters, nowhere);
  for (std::size_t b = 0; b < plan.size(); ++b) {
    for (const auto& entry : plan[b].entries) {
      bucket_of[static_cast<std::size_t>(entry.parameter)] = b;
    }
  }
  return bucket_of;
}

}  // namespace

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
      arrived_(parameters_.size(), 0),
      complete_([this](std::size_t parameter) { with_advice([&] { on_complete(parameter); }); }) {
  buckets_.emplace(parameters_, plan_, group_, complete_);
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
  PEAL_CHECK(backward_ == 0, "[ddp] set_comm_hook: a backward is under way");
  hook_ = std::move(hook);
}

// What is there of gradients moves home, and from there into the new buckets: memory for both is
// never needed at once.
void Reducer::exchange(std::vector<Bucket> plan) {
  buckets_.reset();
  // Memory of a device goes back when its queues are empty: nobody fills them before all have done
  // that, as ranks may share a device.
  group_.barrier().wait();
  plan_ = std::move(plan);
  bucket_of_ = buckets_by_parameter(parameters_.size(), plan_);
  flights_.assign(plan_.size(), {});
  came_.assign(parameters_.size(), Came::all);
  buckets_.emplace(parameters_, plan_, group_, complete_);
}

// What earlier steps have taught of unused parameters is of others.
void Reducer::exchange(NamedTensors parameters, std::vector<Bucket> plan) {
  unwatch();
  buckets_.reset();
  newcomers_.clear();
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const std::size_t before = place_of(parameters[p].second);
    if (before == nowhere || bucket_of_[before] == nowhere) newcomers_.push_back(p);
  }
  parameters_ = std::move(parameters);
  unused_.exchange(parameters_);
  parts_.assign(parameters_.size(), 0);
  hidden_.assign(parameters_.size(), false);
  arrived_.assign(parameters_.size(), 0);
  expected_.clear();
  agreed_ = learnt_ = false;
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

void Reducer::set_clock(std::unique_ptr<StepClock> clock) { step_clock_ = std::move(clock); }

bool Reducer::Forward::gone() const {
  return std::all_of(nodes.begin(), nodes.end(), [](const auto& node) { return node.expired(); });
}

void Reducer::note_forward(const Tensors& outputs) {
  constexpr std::size_t many = 64;  // of models that are never trained, too
  if (Graph::capturing() != nullptr) return;
  Forward forward{forward_calls_, {}};
  for (const Tensor& output : outputs) {
    if (output.defined() && output.body().node) forward.nodes.push_back(output.body().node);
  }
  if (forward.nodes.empty()) return;
  ++forward_calls_;
  ++without_backward_;
  if (forwards_.size() >= many) std::erase_if(forwards_, [](const auto& f) { return f.gone(); });
  forwards_.push_back(std::move(forward));
}

// By calls that are the same on all ranks, where ranks do the same.
void Reducer::number_step() {
  const auto reached = [](const std::weak_ptr<Node>& node) {
    const auto here = node.lock();
    return here && here->walk != nullptr;
  };
  step_hash_ = 1;
  comm::mix(step_hash_, ++steps_);
  comm::mix(step_hash_, forward_calls_);
  without_backward_ -= std::erase_if(forwards_, [&](const Forward& forward) {
    if (std::none_of(forward.nodes.begin(), forward.nodes.end(), reached)) return false;
    comm::mix(step_hash_, forward.number);
    return true;
  });
  name_step();
}

void Reducer::name_step() {
  step_ = concat("step ", steps_);
  if (without_backward_ > 0) step_ += concat(", forwards without a backward: ", without_backward_);
}

// Of a collective of this step.
std::uint64_t Reducer::tag_of(std::size_t bucket) const {
  std::uint64_t tag = tag_;
  comm::mix(tag, step_hash_);
  comm::mix(tag, bucket);
  return tag;
}

// The number that the parameter has then.
std::size_t Reducer::begin(std::size_t first) {
  const bool watched = first >= parameters_.size();
  const Tensor tensor = watched ? watched_[first - parameters_.size()] : parameters_[first].second;
  // An exception ended that backward when others already waited for it.
  if (backward_ != 0 && next_ > 0 && !captured_) {
    fail_everywhere(
        group_, concat("an earlier backward was left by an exception after ", next_, " of ",
                       flights_.size(), " buckets were launched; the ranks cannot go on together"));
  }
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
  after_backward([this] { with_advice([this] { finish(); }); });
  announce(group_, place(Announcement::What::begin));
  prepare();
  first = place_of(tensor);
  open();
  take_complete(first);
  expect_unused(first);
  return first;
}

void Reducer::prepare() {
  newcomers_.clear();
  if (listener_.prepare) listener_.prepare();
}

// Of parameters that the reducer has only now, gradients may be there already, as nothing told of
// them.
void Reducer::take_complete(std::size_t first) {
  for (const std::size_t p : newcomers_) {
    if (bucket_of_[p] == nowhere || p == first) continue;
    const GradSlot& slot = parameters_[p].second.grad_slot();
    if (slot.expected > 0 || !slot.defined()) continue;
    unused_.note_use(p);
    parts_[p] = 1;
    came_[p] = Came::all;
    --flights_[bucket_of_[p]].waiting;
  }
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
  weights_.send();
  if (listener_.begin) listener_.begin();
}

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

void Reducer::stand_in(std::size_t parameter) {
  unused_.stand_in(parameter, plan_[bucket_of_[parameter]].dtype);
  came_[parameter] = Came::zeros;
  --flights_[bucket_of_[parameter]].waiting;
}

void Reducer::on_complete(std::size_t parameter) {
  if (weights_.is_open() && !weights_.weighing()) end_weights(parameter);
  if (synchronizing_ && backward_ != backward_number()) parameter = begin(parameter);
  if (parameter >= parameters_.size() || bucket_of_[parameter] == nowhere) return;  // a stranger's
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

void Reducer::launch_ready() {
  if (first_of_static() && backward_ != 0) return;  // another part may come
  while (next_ < flights_.size() && flights_[next_].waiting == 0) launch();
}

void Reducer::launch() {
  const std::size_t now = next_++;  // before a hook that may send and then throw
  text_.assign(step_).append(", ").append(buckets_->name(now));
  const comm::Label label(text_, tag_of(now));
  announce(group_, {.what = Announcement::What::bucket, .wrapper = tag_});
  if (step_clock_) step_clock_->sends(now, text_);
  if (!hook_) {
    flights_[now].work = group_.all_reduce(buckets_->sent(now), comm::ReduceOp::avg, label);
    return;
  }
  GradBucket& bucket = (*buckets_)[now];
  bucket.label = label;
  bucket.averaged = Averaged::over_all;
  const std::shared_ptr<void> reset(nullptr, [&](void*) { bucket.label = {}; });
  flights_[now].work = hook_(bucket);
  if (step_clock_ && bucket.buffer.device() == Device{}) {
    step_clock_->sent_by_hook(now, flights_[now].work);
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
    flag = group_.all_reduce(buckets_->flag(), comm::ReduceOp::avg, label);
  }
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
  if (buckets_->has_flag() && buckets_->flag_raised()) {
    buckets_->lower_flag();
    if (hook_ && !alone) fail_alone();
    fail_missing(group_, parameters_, missing(), step_, advice());
  }
  scale();
  settle_unused();
  shared_ = true;
  added_ = false;
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
    if (bucket.averaged == Averaged::over_some) {
      fail_everywhere(group_, concat(step_,
                                     ": the hook averages over some of the ranks, which goes "
                                     "with neither backward(loss, samples) nor Join with "
                                     "divide_by_initial_world_size = false"));
    }
    mul_(bucket.buffer, bucket.averaged == Averaged::over_all ? factor : of_own);
  }
}

Announcement Reducer::place(Announcement::What what) const {
  return {.what = what,
          .tag = step_hash_,
          .wrapper = tag_,
          .steps = steps_,
          .forward_calls = forward_calls_,
          .without_backward = without_backward_,
          .weighted = weights_.is_open()};
}

void Reducer::follow(const Announcement& where) {
  using What = Announcement::What;
  if (where.what == What::begin || where.what == What::next) {
    steps_ = where.steps;
    forward_calls_ = where.forward_calls;
    without_backward_ = where.without_backward;
  }
  if (where.what == What::begin) {
    step_hash_ = where.tag;
    name_step();
    captured_ = false;
    following_ = true;
    begin_without_batch(where.weighted);
    prepare();
    open();
    for (std::size_t p = 0; p < came_.size(); ++p) {
      if (came_[p] == Came::nothing) stand_in(p);
    }
    leave_out_shared();
  } else if (where.what == What::samples) {
    weights_.estimate(0);
  } else if (where.what == What::bucket) {
    launch();
  } else if (where.what == What::finish) {
    close();
    following_ = false;
  }
}

// That it has got nothing is wrong.
bool Reducer::is_missing(std::size_t parameter) const {
  if (came_[parameter] == Came::all || first_of_static() || following_) return false;
  return options_.static_graph ? expected_[parameter] > 0 : !options_.find_unused_parameters;
}

std::vector<bool> Reducer::missing() const {
  std::vector<bool> all;
  for (std::size_t p = 0; p < came_.size(); ++p) all.push_back(is_missing(p));
  return all;
}

void Reducer::check_missing() {
  const std::vector<bool> here = missing();
  if (std::find(here.begin(), here.end(), true) == here.end()) return;
  if (!buckets_->has_flag()) fail_alone();
  buckets_->raise_flag();  // and all ranks are told when they have finished the sums
}

// Where the others do not look for a flag.
void Reducer::fail_alone() const {
  const std::vector<bool> here = missing();
  std::vector<std::string> names;
  for (std::size_t p = 0; p < here.size(); ++p) {
    if (here[p]) names.push_back(parameters_[p].first);
  }
  fail_everywhere(
      group_, concat("no gradient came for ", first_names(names), " in ", step_, ". ", advice()));
}

// A hook sends the bucket without it.
bool Reducer::flag_goes_alone() {
  if (!hook_ || !buckets_->has_flag()) return false;
  for (std::size_t b = 0; b < buckets_->size(); ++b) {
    if ((*buckets_)[b].averaged != Averaged::not_at_all) return true;
  }
  return false;
}

void Reducer::complete_rest() {
  check_missing();
  for (std::size_t p = 0; p < came_.size(); ++p) {
    if (came_[p] == Came::nothing || came_[p] == Came::unseen) stand_in(p);
  }
  launch_ready();
  if (first_of_static()) expected_ = parts_;
  learnt_ = true;
}

void Reducer::settle_unused() {
  if (options_.static_graph ? !agreed_ : options_.find_unused_parameters) {
    unused_.agree(tag_of(plan_.size()));
    agreed_ = true;
  }
  const std::size_t stranger = unused_.surprise();
  if (stranger < parameters_.size()) {
    fail_everywhere(group_, concat(step_, ": ", parameters_[stranger].first,
                                   " was used, under no_sync(), and by no rank in the first step: "
                                   "with static_graph each step is to be as that"));
  }
  unused_.settle();
}

std::string Reducer::advice() const {
  if (options_.static_graph) {
    return "With static_graph each step is to be as the first was on the same rank; without it, "
           "find_unused_parameters takes steps that differ";
  }
  return "Every parameter must take part in the loss on every rank. Freeze those that are not to "
         "(set_requires_grad(false)), on all ranks; or set find_unused_parameters";
}

}  // namespace peal::nn
