// SPDX-License-Identifier: Apache-2.0
// Changes of a wrapped model: parameters that are frozen or thawed, and members that join or leave.
// A rank sees them by itself, the ranks agree on them where a step begins, and go on by another
// plan.
#include <peal/autograd/core/error.h>
#include <peal/autograd/grad_slot.h>
#include <peal/comm/group/agree.h>
#include <peal/nn/parallel/ddp_state.h>
#include <peal/nn/parallel/fail_everywhere.h>

#include <algorithm>
#include <string>
#include <utility>

namespace peal::nn {
namespace {

bool has(const NamedTensors& list, const Tensor& tensor) {
  return std::any_of(list.begin(), list.end(),
                     [&](const auto& other) { return other.second.same_as(tensor); });
}

// Those of `now` that are not among `before`.
NamedTensors joined(const NamedTensors& before, NamedTensors now) {
  std::erase_if(now, [&](const auto& named) { return has(before, named.second); });
  return now;
}

}  // namespace

void DistributedDataParallel::State::look_for_newcomers() {
  if (!members.changed()) return;
  NamedTensors strangers;
  for (const Tensor& stranger : members.newcomers()) {
    if (!stranger.grad_slot().has_final_hook()) strangers.emplace_back("", stranger);
  }
  keep_gradients(strangers, options.mixed_precision);
  for (const auto& [name, stranger] : strangers) reducer.watch(stranger);
}

// Why these cannot be the wrapper's; nothing where they can.
std::string DistributedDataParallel::State::obstacle_to(const MemberList& now) const {
  for (std::size_t p = 0; p < now.parameters.size(); ++p) {
    const auto& [name, tensor] = now.parameters[p];
    if (!now.trained[p] || reducer.has(tensor)) continue;
    const GradSlot& slot = tensor.grad_slot();
    if (slot.has_final_hook()) {
      return concat(name, " already belongs to a distributed wrapper; destroy that one first");
    }
    const DType wanted = options.mixed_precision.gradient_of(tensor.dtype());
    if (slot.dtype() != wanted) {
      return concat("the gradient of ", name, " is kept in ", slot.dtype(), ", not in ", wanted,
                    " as mixed_precision says; call the model through the wrapper, or make no "
                    "gradient of new parameters before");
    }
  }
  const auto wide = wide_in(now.parameters, options.mixed_precision);
  if (wide == now.parameters.end() || hooked) return {};
  if (!options.owner_of && !reducer.has_comm_hook()) return {};
  return concat("the gradient of ", wide->first, " is ", wide->second.dtype(),
                ", for which mixed_precision has a hook, as its reduce_dtype is ",
                *options.mixed_precision.reduce_dtype,
                options.owner_of ? "; gradients that go to one owner each go through none: leave "
                                   "reduce_dtype out"
                                 : "; register no other, or leave reduce_dtype out");
}

void DistributedDataParallel::State::exchange_members() {
  MemberList now = members.now();
  const std::string what = difference(members.list(), now);
  if (captured_) {
    fail_everywhere(group, concat("since a step was captured: ", what,
                                  "; a replay sends what there was. Wrap the model again, and "
                                  "capture the step again"));
  }
  if (reducer.following()) look_for_newcomers();  // this rank had no forward that did
  std::string obstacle = obstacle_to(now);
  Planned planned;
  if (obstacle.empty()) planned = plan_or_why(now, options, group, obstacle);
  comm::agree_unless(group, concat("[ddp] the wrapped model (", what, ")"),
                     concat(what, '\n', describe(planned, now, options)), obstacle,
                     "freeze, thaw, add and remove the same on every rank");
  const MemberList& before = members.list();
  for (auto& each : joined(before.parameters, now.parameters)) joined_.push_back(std::move(each));
  std::erase_if(joined_, [&](const auto& named) { return !has(now.parameters, named.second); });
  const bool same_buffers =
      now.buffers.size() == before.buffers.size() && joined(before.buffers, now.buffers).empty();
  reducer.exchange(now.parameters, std::move(planned.buckets));
  if (!hooked && sends_by_hook(now.parameters, options.mixed_precision)) {
    set_hook();
    hooked = true;
  }
  specs = std::move(planned.specs);
  caps = planned.caps;
  order_learnt = false;
  members.take(std::move(now));
  watch_members();
  if (!same_buffers) {
    make_buffer_sync();
    if (buffer_sync) buffer_sync->doubt_all();
  }
  learns_ = learns_order(options) && group.world() > 1;
  planned_in_ = reducer.step();
}

}  // namespace peal::nn
