// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/graph.h>
#include <peal/comm/group/agree.h>
#include <peal/nn/parallel/compress_hooks.h>
#include <peal/nn/parallel/ddp_state.h>
#include <peal/nn/parallel/fail_everywhere.h>
#include <peal/nn/parallel/make_equal.h>
#include <peal/nn/parallel/same_calls.h>
#include <peal/nn/parallel/step_clock.h>

#include <string>
#include <utility>
#include <vector>

namespace peal::nn {

DistributedDataParallel::State::State(const Module& wrapped, const DDPOptions& chosen,
                                      Members members_of, Planned planned,
                                      const comm::ProcessGroup& over, std::uint64_t tag_of)
    : module(wrapped),
      group(over),
      options(chosen),
      tag(tag_of),
      specs(std::move(planned.specs)),
      caps(planned.caps),
      members(std::move(members_of)),
      hooked(sends_by_hook(members.list().parameters, options.mixed_precision)),
      learns_(learns_order(options) && group.world() > 1),
      reducer(members.list().parameters, std::move(planned.buckets), group, tag,
              {options.find_unused_parameters, options.static_graph}) {
  watch_members();
  make_buffer_sync();
  if (options.measure_every > 0 || comm::Recording::is_traced(group)) {
    reducer.set_clock(std::make_unique<StepClock>(group, options.measure_every, tag));
  }
  if (hooked) set_hook();
  reducer.set_listener({.prepare = [this] { prepare(); },
                        .begin =
                            [this] {
                              if (buffer_sync) buffer_sync->ask(reducer.step_name());
                            },
                        .end = [this] { end(); }});
  if (group.world() > 1) {
    layers_ = before_layers(group, [this](std::string_view layer) { before_layer(layer); });
  }
}

// What looks at the values of members.
void DistributedDataParallel::State::watch_members() {
  NamedTensors all = members.list().parameters;
  const NamedTensors& buffers = members.list().buffers;
  if (options.broadcast_buffers) all.insert(all.end(), buffers.begin(), buffers.end());
  replicas_.emplace(std::move(all), group, options.check_every);
  replicas_->also(compared);
}

void DistributedDataParallel::State::make_buffer_sync() {
  const NamedTensors& buffers = members.list().buffers;
  buffer_sync.reset();
  if (group.world() == 1 || !options.broadcast_buffers || buffers.empty()) return;
  buffer_sync.emplace(module, buffers, group, tag);
  buffer_sync->set_root(root_, all_active_);
}

void DistributedDataParallel::State::set_hook() {
  reducer.set_comm_hook(reduce_hook(group, *options.mixed_precision.travels_in()));
}

void DistributedDataParallel::State::check_not_rounded() const {
  if (rounded_.expired()) return;
  fail_everywhere(group,
                  "a backward began where parameters are rounded ones: let rounded() go "
                  "before it (a recomputed segment's too, after its forward)");
}

// A step begins, on all ranks.
void DistributedDataParallel::State::prepare() {
  check_not_rounded();
  if (Graph::capturing() != nullptr) {
    captured_ = true;
    learns_ = false;
  }
  if (members.changed()) {
    exchange_members();
  } else if (learns_ && reducer.step() > planned_in_) {
    learn_order();
  }
}

// Within a recomputed segment, perhaps: what it computes is recorded, and where that is of rounded
// parameters no step can begin yet.
void DistributedDataParallel::State::before_layer(std::string_view layer) {
  if (!layer.empty()) reducer.set_layers_meet();
  if (!rounded_.expired() || !reducer.awaits()) return;
  const NoGrad guard;
  const Autocast as_in_backward(DType::bf16, false);  // the segment's own is on
  with_advice([&] { reducer.begin_before(layer); });
}

void DistributedDataParallel::State::learn_order() {
  const auto order = common_order(group, reducer.arrival(), members.list(), options, tag);
  if (order.empty()) return;
  learns_ = false;
  order_learnt = true;
  Planned planned = plan_of_all(members.list(), options, group, order);
  if (planned.buckets != reducer.buckets()) reducer.exchange(std::move(planned.buckets));
}

void DistributedDataParallel::State::set_order(const std::vector<std::string>& names) {
  DDPOptions with = options;
  with.order = names;
  const std::string wrong = why_not([&] {
    check_names(module, with);
    PEAL_CHECK(!captured_,
               "a step was captured, and a replay sends what it sent; set the order before");
  });
  std::string lines;
  for (const std::string& name : names) lines += name + '\n';
  comm::agree_unless(group, "[ddp] set_order", lines, wrong, "give the same order on every rank");
  if (names.empty()) return;
  learns_ = false;
  order_learnt = true;
  Planned planned = plan_of_all(members.list(), with, group);
  if (planned.buckets != reducer.buckets()) reducer.exchange(std::move(planned.buckets));
}

// The gradients are there, and the graph has gone: what it has kept may be written.
void DistributedDataParallel::State::end() {
  make_equal(group, std::exchange(joined_, {}));
  settle();
  replicas_->count_step(reducer.step());
}

void DistributedDataParallel::State::settle() {
  if (buffer_sync) buffer_sync->settle();
  note_equal();
}

void DistributedDataParallel::State::note_equal() {
  stale = false;
  if (buffer_sync) buffer_sync->set_root(root_, all_active_);
}

std::shared_ptr<void> DistributedDataParallel::State::round(const std::shared_ptr<State>& state) {
  if (!state->options.mixed_precision.param_dtype) return nullptr;
  // A scope within others is the same one: the last that goes gives the masters back.
  if (auto standing = state->rounded_.lock()) return standing;
  struct Rounded {
    std::shared_ptr<State> state;
    std::shared_ptr<void> standing;
  };
  // Recorded in any case: a scope within this one may want gradients.
  const GradMode recorded(true);
  Members& members = state->members;
  state->look_for_newcomers();
  const auto scope = std::make_shared<Rounded>(Rounded{
      state,
      round_parameters(members.changed() ? members.now().parameters : members.list().parameters,
                       state->options.mixed_precision)});
  state->rounded_ = scope;
  return scope;
}

void DistributedDataParallel::State::before_forward(bool training) {
  if (context().grad_enabled) {
    reducer.check_whole();
    if (rounded_.expired()) look_for_newcomers();  // round() has
  }
  if (!reducer.synchronizing()) return;
  if (StepClock* const clock = reducer.clock(); clock && training) clock->forward_begins();
  if (stale && buffer_sync) {
    announce(group, {.what = Announcement::What::buffers, .wrapper = tag});
    buffer_sync->ask("before a forward");
    settle();
  }
  // What is written while nobody wants gradients, by some of the ranks perhaps, the next agreement
  // finds.
  if (training && context().grad_enabled) stale = true;
}

void DistributedDataParallel::State::set_actives(int divisor, int lowest, bool all) {
  reducer.divide_by(divisor);
  all_active_ = all;
  root_ = lowest;
  // What was written in the turn before is of the rank that was the lowest there.
  if (buffer_sync && !stale) buffer_sync->set_root(root_, all_active_);
}

// As those who have a batch, in a backward.
void DistributedDataParallel::State::follow(const Announcement& where) {
  const NoGrad guard;
  const Autocast as_in_backward(DType::bf16, false);
  if (where.what == Announcement::What::next) stale = where.stale;
  if (where.what != Announcement::What::buffers) return reducer.follow(where);
  buffer_sync->ask("before a forward");
  settle();
}

}  // namespace peal::nn
