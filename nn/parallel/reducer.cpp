// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/graph.h>
#include <peal/autograd/core/log.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/tape.h>
#include <peal/comm/schedule/mix.h>
#include <peal/nn/parallel/fail_everywhere.h>
#include <peal/nn/parallel/reducer.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace peal::nn {

Reducer::Reducer(NamedTensors parameters, std::vector<Bucket> plan, comm::ProcessGroup group,
                 std::uint64_t tag)
    : parameters_(std::move(parameters)),
      plan_(std::move(plan)),
      group_(std::move(group)),
      tag_(tag),
      hook_(average_gradients(group_)),
      flights_(plan_.size()),
      complete_(parameters_.size(), true),
      buckets_(parameters_, plan_, group_, [this](std::size_t parameter, std::size_t bucket) {
        on_complete(parameter, bucket);
      }) {}

Reducer::~Reducer() {
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

void Reducer::begin() {
  // An exception ended that backward when others already waited for it.
  if (backward_ != 0 && next_ > 0 && !captured_) {
    fail_everywhere(
        group_, concat("an earlier backward was left by an exception after ", next_, " of ",
                       flights_.size(), " buckets were launched; the ranks cannot go on together"));
  }
  backward_ = backward_number();
  captured_ = Graph::capturing() != nullptr;
  // Of a replay nobody here knows the number.
  if (captured_) {
    step_ = "a captured step";
    step_hash_ = 0;
  } else {
    number_step();
  }
  next_ = 0;
  for (std::size_t b = 0; b < plan_.size(); ++b) {
    flights_[b].waiting = plan_[b].entries.size();
    for (const auto& entry : plan_[b].entries) {
      complete_[static_cast<std::size_t>(entry.parameter)] = false;
    }
  }
  after_backward([this] { finish(); });
  if (listener_.begin) listener_.begin();
}

void Reducer::on_complete(std::size_t parameter, std::size_t bucket) {
  if (!synchronizing_) return;
  if (backward_ != backward_number()) begin();
  if (complete_[parameter]) {
    if (bucket >= next_) return;  // another part, which was added where the bucket still waits
    fail_everywhere(
        group_,
        concat(
            parameters_[parameter].first, " got another part of its gradient after ",
            buckets_.name(bucket),
            " was sent: it is used in several recomputed segments, or in one "
            "and outside of it. Recompute all its uses in one segment; or run this backward under "
            "no_sync(), and average the gradients afterwards: all_reduce(parameter.grad(), "
            "ReduceOp::avg)"));
  }
  complete_[parameter] = true;
  --flights_[bucket].waiting;
  launch_ready();
  group_.progress();
}

void Reducer::launch_ready() {
  while (next_ < flights_.size() && flights_[next_].waiting == 0) {
    const std::size_t now = next_++;  // before a hook that may send and then throw
    const std::string text = concat(step_, ", ", buckets_.name(now));
    GradBucket& bucket = buckets_[now];
    bucket.label = {text, tag_of(now)};
    const std::shared_ptr<void> reset(nullptr, [&](void*) { bucket.label = {}; });
    flights_[now].work = hook_(bucket);
  }
}

void Reducer::finish() {
  backward_ = 0;
  if (listener_.visited) listener_.visited();
  if (next_ < flights_.size()) {
    std::string names;
    for (std::size_t i = 0; i < complete_.size(); ++i) {
      if (!complete_[i]) names += concat(names.empty() ? "" : ", ", parameters_[i].first);
    }
    fail_everywhere(group_,
                    concat("no gradient came for ", names,
                           " in this backward; every parameter must take part in the loss on every "
                           "rank. Freeze those that are not meant to (set_requires_grad(false)) "
                           "before the model is wrapped"));
  }
  {
    const TraceSpan span("wait for gradients", true);
    const auto start = std::chrono::steady_clock::now();
    for (const Flight& flight : flights_) flight.work.wait();
    exposed_seconds_ +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  for (Flight& flight : flights_) flight.work = {};
  if (listener_.end) listener_.end();
}

}  // namespace peal::nn
