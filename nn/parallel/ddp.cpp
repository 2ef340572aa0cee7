// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/grad_slot.h>
#include <peal/comm/group/agree.h>
#include <peal/comm/schedule/mix.h>
#include <peal/nn/parallel/cut_parameters.h>
#include <peal/nn/parallel/ddp.h>
#include <peal/nn/parallel/ddp_state.h>
#include <peal/nn/parallel/explain.h>
#include <peal/nn/parallel/fail_everywhere.h>
#include <peal/nn/parallel/make_equal.h>
#include <peal/nn/parallel/step_clock.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace peal::nn {
namespace {

// What this rank finds wrong, which the others are yet to hear.
std::string obstacle_in(const Module& model, const comm::ProcessGroup& group,
                        const MemberList& members, const DDPOptions& options) {
  return why_not([&] {
    CutParameters(model).check_apart(group);
    check_names(model, options);
    check(options.mixed_precision);
    PEAL_CHECK(options.measure_every >= 0, "measure_every: expected 0 or more steps, got ",
               options.measure_every);
    PEAL_CHECK(!options.owner_of || !sends_by_hook(members.parameters, options.mixed_precision),
               "mixed_precision: reduce_dtype makes a communication hook, which gradients that go "
               "to one owner each do not go through; leave it out");
    for (std::size_t p = 0; p < members.parameters.size(); ++p) {
      const auto& [name, tensor] = members.parameters[p];
      PEAL_CHECK(!members.trained[p] || !tensor.grad_slot().has_final_hook(), name,
                 " already belongs to a distributed wrapper; destroy that one first");
    }
  });
}

}  // namespace

DistributedDataParallel::DistributedDataParallel(Module module, comm::ProcessGroup group,
                                                 const DDPOptions& options)
    : Module(std::move(module)) {
  PEAL_CHECK(
      bool(group),
      "[ddp] expected a process group, got none; where this is one of new_group() or split(), "
      "the rank is not in it, and wraps nothing");
  stay();
  const Module plain = static_cast<const Module&>(*this);
  Members members(plain, options.ignored);
  std::string obstacle = obstacle_in(plain, group, members.list(), options);
  Planned planned;
  if (obstacle.empty()) planned = plan_or_why(members.list(), options, group, obstacle);
  comm::agree_unless(group, "[ddp] the model", nn::describe(planned, members.list(), options),
                     obstacle, "build the same model with the same options on every rank");
  try {  // from here on the model is changed
    // Of those, too, that it leaves alone.
    make_values(group, plain.named_parameters(), "ddp");
    if (options.mixed_precision.buffer_dtype) {
      convert_buffers(members.list().buffers, *options.mixed_precision.buffer_dtype);
    }
    make_equal(group, members.list().parameters);
    make_equal(group, members.list().buffers);
    keep_gradients(members.list().parameters, options.mixed_precision);
    std::uint64_t tag = 0;
    comm::mix(tag, group.sequence());
    state_ =
        std::make_shared<State>(plain, options, std::move(members), std::move(planned), group, tag);
  } catch (...) {
    rethrow_everywhere(group, "the model could not be wrapped");
  }
  const std::weak_ptr<State> weak = state_;
  const auto before = register_forward_pre_hook([weak](Module& self, const Tensors&) -> Replaced {
    if (const auto state = weak.lock()) state->before_forward(self.training());
    return std::nullopt;
  });
  const auto after = register_forward_hook(
      [weak](Module& self, const Tensors&, const Tensors& outputs) -> Replaced {
        const auto state = weak.lock();
        if (state && self.training() && state->reducer.synchronizing()) {
          state->reducer.note_forward(outputs);
          if (StepClock* const clock = state->reducer.clock()) clock->forward_ends(outputs);
        }
        return std::nullopt;
      });
  hooks_ = std::shared_ptr<void>(nullptr, [plain = Module(plain), before, after](void*) mutable {
    plain.remove_hook(before);
    plain.remove_hook(after);
  });
}

DistributedDataParallel::NoSync DistributedDataParallel::no_sync() {
  return NoSync(std::shared_ptr<Reducer>(state_, &state_->reducer));
}

Tensor DistributedDataParallel::forward(const Tensor& x) {
  const auto scope = rounded();
  return given_output(Module::forward(scope ? rounded_input(x, mixed_precision()) : x),
                      mixed_precision());
}

std::shared_ptr<void> DistributedDataParallel::rounded() { return State::round(state_); }

const MixedPrecision& DistributedDataParallel::mixed_precision() const {
  return state_->options.mixed_precision;
}

void DistributedDataParallel::register_comm_hook(CommHook hook) {
  PEAL_CHECK(!state_->hooked,
             "[ddp] register_comm_hook: mixed_precision has a hook already, for its reduce_dtype; "
             "make that f32, and compress in yours");
  reducer().set_comm_hook(std::move(hook));
}

void DistributedDataParallel::sync_buffers() {
  if (state_->buffer_sync) state_->buffer_sync->send_all();
  state_->note_equal();
}

Reducer& DistributedDataParallel::reducer() const { return state_->reducer; }

const comm::ProcessGroup& DistributedDataParallel::group() const { return state_->group; }

std::vector<std::string> DistributedDataParallel::arrival() const {
  std::vector<std::string> names;
  for (const int i : state_->reducer.arrival()) {
    names.push_back(state_->specs[static_cast<std::size_t>(i)].name);
  }
  return names;
}

std::vector<std::string> DistributedDataParallel::order() const {
  std::vector<std::string> names;
  if (!state_->order_learnt && state_->options.order.empty()) return names;
  for (const Bucket& bucket : state_->reducer.buckets()) {
    for (const auto& entry : bucket.entries) {
      names.push_back(state_->specs[static_cast<std::size_t>(entry.parameter)].name);
    }
  }
  return names;
}

void DistributedDataParallel::set_order(const std::vector<std::string>& names) {
  state_->set_order(names);
}

void DistributedDataParallel::check_replicas_of(std::string name,
                                                std::function<NamedTensors()> state) {
  state_->compared.push_back({std::move(name), std::move(state)});
  state_->watch_members();
}

const DDPLoggingData& DistributedDataParallel::get_ddp_logging_data() const {
  static const DDPLoggingData nothing{};
  const StepClock* const clock = state_->reducer.clock();
  return clock == nullptr ? nothing : clock->last();
}

// In the order that plans have here: learnt, or that of the plan that there is.
std::vector<WhatIf> DistributedDataParallel::what_if(const CollectiveCost& cost,
                                                     std::optional<DType> travels_in) const {
  WhatIfOptions options{.travels_in = travels_in};
  if (state_->hooked) options.travels_in = mixed_precision().travels_in();
  if (!learns_order(state_->options)) {
    for (const Bucket& bucket : reducer().buckets()) {
      for (const auto& entry : bucket.entries) options.order.push_back(entry.parameter);
    }
  }
  return nn::what_if(state_->specs, profile_of(get_ddp_logging_data()), cost, options);
}

std::string DistributedDataParallel::explain() const {
  return nn::explain({state_->group, state_->options, state_->caps, state_->order_learnt,
                      state_->specs, *this, state_->reducer});
}

void DistributedDataParallel::backward(const Tensor& loss, double samples) {
  state_->check_not_rounded();
  const std::vector<std::string>& ignored = state_->options.ignored;
  std::vector<Tensor> others;
  for (const auto& [name, tensor] : ignored.empty() ? NamedTensors{} : named_parameters()) {
    const bool other = std::find(ignored.begin(), ignored.end(), name) != ignored.end();
    if (other && tensor.requires_grad()) others.push_back(tensor);
  }
  reducer().backward(loss, samples, others);
}

void DistributedDataParallel::set_actives(int divisor, int lowest, bool all) {
  state_->set_actives(divisor, lowest, all);
}

// Which ends, for ranks that had no batch in it.
Announcement DistributedDataParallel::turn() const {
  Announcement here = state_->reducer.place(Announcement::What::next);
  here.stale = state_->stale;
  return here;
}

void DistributedDataParallel::follow(const Announcement& where) { state_->follow(where); }

Device DistributedDataParallel::device() const {
  const std::vector<Tensor> all = parameters();
  return all.empty() ? Device{} : all.front().device();
}

}  // namespace peal::nn
