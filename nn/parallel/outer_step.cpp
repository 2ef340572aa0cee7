// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/stateful.h>
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/choose.h>
#include <peal/comm/group/agree.h>
#include <peal/comm/schedule/mix.h>
#include <peal/nn/parallel/make_equal.h>
#include <peal/nn/parallel/outer_step.h>
#include <peal/nn/parallel/planning.h>

#include <bit>
#include <utility>

namespace peal::nn {
namespace {

NamedTensors named(const Parameters& parameters) {
  NamedTensors all;
  for (std::size_t i = 0; i < parameters.tensors.size(); ++i) {
    const Tensor& each = parameters.tensors[i];
    PEAL_CHECK(is_floating(each.dtype()), "expected parameters of a floating type, got ",
               each.dtype(), " ", each.shape());
    all.emplace_back(parameters.names.empty() ? std::to_string(i) : parameters.names[i],
                     each.detach());
  }
  return all;
}

// Of the outer optimizer's state: its settings are those of the options.
bool is_setting(const std::string& name) { return name.starts_with("groups."); }

}  // namespace

OuterStep::OuterStep(std::string_view who, comm::ProcessGroup group, const Parameters& parameters,
                     std::int64_t period, const SGDOptions& options)
    : who_(who),
      group_(std::move(group)),
      parameters_(parameters),
      period_(period),
      options_(options) {
  const NoGrad guard;
  NamedTensors all;
  agree(why_not([&] {
    PEAL_CHECK(period_ > 0, "expected a period of 1 step or more, got ", period_);
    all = named(parameters_);
    check_not_pieces(who_, parameters_.tensors,
                     "ranks of one sharded model have no models of their own to average");
  }));
  make_equal(group_, all);
  for (const auto& [name, tensor] : all) {
    begin_.push_back(cast(tensor, computed_in(tensor.dtype())).clone().set_requires_grad());
  }
  outer_ = std::make_unique<SGD>(begin_, options_);
}

void OuterStep::agree(const std::string& wrong) {
  std::string mine =
      concat("period ", period_, "\nlr ", options_.lr, "\nmomentum ", options_.momentum,
             "\ndampening ", options_.dampening, "\nmaximize ", options_.maximize,
             "\nweight_decay ", options_.weight_decay, "\nnesterov ", options_.nesterov, "\nstep ",
             steps_, "\nloaded at step ", loaded_);
  for (const auto& [name, tensor] : wrong.empty() ? named(parameters_) : NamedTensors()) {
    mine += concat("\n", name, " ", tensor.dtype(), " ", tensor.shape());
  }
  for (const auto& [name, tensor] : outer_ ? state_dict() : NamedTensors()) {  // that was loaded
    mine += digest_line(name, tensor);
  }
  comm::agree_unless(
      group_, concat("[outer] ", who_), mine, wrong,
      "give it the same options and parameters, and load the same state, on every rank");
  agreed_ = true;
}

bool OuterStep::comes() {
  if (++steps_ % period_ != 0) return false;
  if (!agreed_) agree();
  return true;
}

void OuterStep::take(double lr, double divisor) {
  const NoGrad guard;
  std::vector<Tensor> away;
  std::vector<View> list;
  for (std::size_t i = 0; i < begin_.size(); ++i) {
    const Tensor begin = begin_[i].detach();
    away.push_back(begin - cast(parameters_.tensors[i].detach(), begin.dtype()));
    list.push_back(away.back());
  }
  std::uint64_t tag = 0;
  for (const std::uint64_t word :
       {static_cast<std::uint64_t>(steps_), std::bit_cast<std::uint64_t>(lr),
        std::bit_cast<std::uint64_t>(divisor)}) {
    comm::mix(tag, word);
  }
  for (const Tensor& each : parameters_.tensors) comm::mix(tag, each.requires_grad() ? 1 : 0);
  const std::string text = concat("distances of ", who_, ", step ", steps_, ", lr ", lr);
  group_.all_reduce_coalesced(list, comm::ReduceOp::avg, comm::Label(text, tag)).wait();
  list.clear();
  PEAL_CHECK(divisor > 0, who_, ": expected the inner optimizer's rate, above 0 in step ", steps_,
             ", which averages, got ", divisor);
  for (std::size_t i = 0; i < begin_.size(); ++i) {
    Tensor gradient = std::exchange(away[i], {});   // held here alone, the slot takes it as it is
    if (!parameters_.tensors[i].requires_grad()) {  // what is frozen neither decays nor rolls on
      add_(begin_[i].detach(), gradient, -1);
      continue;
    }
    if (divisor != 1) gradient = gradient / divisor;
    begin_[i].grad_slot().accumulate(std::move(gradient));
  }
  outer_->set_lr(lr);
  outer_->step();
  outer_->zero_grad();
  for (std::size_t i = 0; i < begin_.size(); ++i) {
    const Tensor x = parameters_.tensors[i].detach();
    x.copy_(cast(begin_[i].detach(), x.dtype()));
  }
}

NamedTensors OuterStep::state_dict() const {
  NamedTensors state{{"step", Tensor::scalar(steps_, Device{})}};
  const NamedTensors all = named(parameters_);
  for (std::size_t i = 0; i < all.size(); ++i) {
    state.emplace_back(concat("begin.", all[i].first), begin_[i].detach());
  }
  for (const auto& [name, tensor] : outer_->state_dict()) {
    if (!is_setting(name)) state.emplace_back(concat("outer.", name), tensor);
  }
  return state;
}

void OuterStep::load_state_dict(const NamedTensors& state) {
  const std::string outer = "outer.";
  NamedTensors of_outer, own;
  for (const auto& [name, tensor] : state) {
    if (name.starts_with(outer)) {
      of_outer.emplace_back(name.substr(outer.size()), tensor);
    } else {
      own.emplace_back(name, tensor);
    }
  }
  StateReader reader(who_, own);
  const auto steps = reader.number<std::int64_t>("step");
  const NamedTensors all = named(parameters_);
  std::vector<Tensor> begin;
  for (std::size_t i = 0; i < all.size(); ++i) {
    begin.push_back(
        reader.tensor(concat("begin.", all[i].first), begin_[i].shape(), begin_[i].dtype()));
  }
  if (steps < 0) reader.fault(concat("step: expected 0 or more, got ", steps));
  reader.finish();
  for (auto& entry : outer_->state_dict()) {
    if (is_setting(entry.first)) of_outer.push_back(std::move(entry));
  }
  outer_->load_state_dict(of_outer);
  for (std::size_t i = 0; i < begin.size(); ++i) begin_[i].detach().copy_(begin[i]);
  steps_ = loaded_ = steps;
  agreed_ = false;
}

DiLoCo::DiLoCo(comm::ProcessGroup group, const Parameters& parameters, const DiLoCoOptions& options)
    : OuterStep("DiLoCo", std::move(group), parameters, options.sync_every, options.outer),
      lr_(options.outer.lr) {}

void DiLoCo::step() {
  if (comes()) take(lr_, 1);
}

// With v = lr u this would be SGD's momentum, but for rates that change between two averages: so
// the distance is divided by the rate, as the paper does.
SlowMomentum::SlowMomentum(comm::ProcessGroup group, const Parameters& parameters,
                           const SlowMoOptions& options)
    : OuterStep("SlowMomentum", std::move(group), parameters, options.slowmo_freq,
                {.lr = options.slowmo_lr, .momentum = options.slowmo_factor}),
      alpha_(options.slowmo_lr) {}

void SlowMomentum::step(double lr) {
  if (comes()) take(alpha_ * lr, lr);
}

}  // namespace peal::nn
