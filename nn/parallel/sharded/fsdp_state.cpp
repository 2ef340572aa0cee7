// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/checkpoint.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/tape.h>
#include <peal/comm/schedule/mix.h>
#include <peal/nn/checkpoint_wrapper.h>
#include <peal/nn/parallel/fail_everywhere.h>
#include <peal/nn/parallel/make_equal.h>
#include <peal/nn/parallel/sharded/fsdp_state.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace peal::nn {
namespace {

std::vector<UnitSchedule::Unit> scheduled(const std::vector<UnitPlan>& plan) {
  std::vector<UnitSchedule::Unit> units;
  for (const UnitPlan& unit : plan) units.push_back({unit.trained(), unit.frozen()});
  return units;
}

NamedTensors parameters_of(const UnitPlan& unit, const MemberList& members) {
  NamedTensors all;
  for (const FlatPlan& flat : unit.flats) {
    for (const auto& entry : flat.entries) {
      all.push_back(members.parameters[static_cast<std::size_t>(entry.parameter)]);
    }
  }
  return all;
}

bool any_wants(const Tensors& tensors) {
  return context().grad_enabled &&
         std::any_of(tensors.begin(), tensors.end(),
                     [](const Tensor& each) { return each.requires_grad(); });
}

}  // namespace

ModelOutline outline_of(const Module& model, const MemberList& members) {
  ModelOutline outline;
  for (auto& [path, module] : model.named_modules()) {
    outline.modules.push_back({path, own_class(module)});
  }
  for (std::size_t p = 0; p < members.parameters.size(); ++p) {
    const auto& [name, tensor] = members.parameters[p];
    outline.parameters.push_back({.name = name,
                                  .shape = tensor.shape(),
                                  .dtype = tensor.dtype(),
                                  .requires_grad = members.trained[p]});
  }
  for (const auto& [name, first] : members.tied) {
    const auto is_parameter = [&](const auto& each) { return each.first == first; };
    if (std::any_of(members.parameters.begin(), members.parameters.end(), is_parameter)) {
      outline.tied.emplace_back(name, first);
    }
  }
  return outline;
}

std::vector<std::string> names_within(const Module& model, const std::vector<std::string>& paths) {
  const auto all = model.named_modules();
  std::unordered_set<const TensorBody*> inside;
  for (const std::string& path : paths) {
    const bool there = std::any_of(all.begin(), all.end(),
                                   [&](const auto& module) { return module.first == path; });
    PEAL_CHECK(there && !path.empty(), "ignored_modules: the model has no module '", path,
               "' below it");
    const Module module = model.get_submodule(path);
    for (const NamedTensors& tensors : {module.named_parameters(), module.named_buffers()}) {
      for (const auto& [name, tensor] : tensors) inside.insert(&tensor.body());
    }
  }
  std::vector<std::string> names;
  for (const NamedTensors& tensors : {model.named_parameters(), model.named_buffers()}) {
    for (const auto& [name, tensor] : tensors) {
      if (inside.contains(&tensor.body())) names.push_back(name);
    }
  }
  return names;
}

FullyShardedDataParallel::State::State(const Module& model, const FSDPOptions& chosen,
                                       const MemberList& members, ModelOutline of,
                                       std::vector<UnitPlan> planned, ShardGroups over,
                                       std::uint64_t tag_of)
    : module(model),
      groups(std::move(over)),
      options(chosen),
      tag(tag_of),
      outline(std::move(of)),
      plan(std::move(planned)),
      cuts(model),
      units(plan.size()),
      schedule_(scheduled(plan), options.schedule) {
  for (std::size_t u = 0; u < plan.size(); ++u) {
    Unit& unit = units[u];
    unit.name = name_of(plan[u]);
    unit.complete = [this, u] { on_complete(static_cast<int>(u)); };
    make_equal(groups.all, parameters_of(plan[u], members));
    for (const FlatPlan& flat : plan[u].flats) {
      unit.flats.emplace_back(flat, members.parameters, groups, options.mixed_precision,
                              options.cpu_offload.offload_params, unit.complete);
    }
  }
  if (groups.all.world() > 1 && options.broadcast_buffers && !members.buffers.empty()) {
    buffer_sync_.emplace(module, members.buffers, groups.all, tag);
  }
}

std::vector<std::uint64_t> FullyShardedDataParallel::State::hook(
    const std::shared_ptr<State>& state, Module& module, int unit) {
  const std::weak_ptr<State> weak = state;
  std::vector<std::uint64_t> ids;
  ids.push_back(
      module.register_forward_pre_hook([weak, unit](Module&, const Tensors& inputs) -> Replaced {
        const auto here = weak.lock();
        if (!here) return std::nullopt;
        here->before_forward(unit);
        return here->rounded(inputs);
      }));
  ids.push_back(module.register_forward_hook(
      [weak, unit](Module&, const Tensors&, const Tensors& outputs) -> Replaced {
        const auto here = weak.lock();
        if (!here) return std::nullopt;
        here->after_forward(unit, any_wants(outputs));
        return unit == 0 ? here->given(outputs) : std::nullopt;
      }));
  ids.push_back(
      module.register_full_backward_pre_hook([weak, unit](Module&, const Tensors&) -> Replaced {
        if (const auto here = weak.lock()) here->before_backward(unit);
        return std::nullopt;
      }));
  // Where no input wants a gradient this comes at once, and says nothing.
  ids.push_back(module.register_full_backward_hook(
      [weak, unit](Module&, const Tensors& inputs, const Tensors&) -> Replaced {
        const auto here = weak.lock();
        const bool over = std::any_of(inputs.begin(), inputs.end(),
                                      [](const Tensor& each) { return each.defined(); });
        if (here && over) here->run(here->schedule_.after_backward(unit));
        return std::nullopt;
      }));
  return ids;
}

// What was gathered before the chunks were written, and was left, is not what is to be used.
bool FullyShardedDataParallel::State::stale(int unit) const {
  const auto& flats = units[static_cast<std::size_t>(unit)].flats;
  return std::any_of(flats.begin(), flats.end(),
                     [](const FlatParameter& flat) { return flat.stale(); });
}

// A frozen one has no place for a gradient, and its piece none for the optimizer.
void FullyShardedDataParallel::State::check_not_thawed(int unit) const {
  const Unit& here = units[static_cast<std::size_t>(unit)];
  for (const FlatParameter& flat : here.flats) {
    const std::string names = flat.plan().trained ? "" : flat.changed();
    if (names.empty()) continue;
    fail_everywhere(groups.all,
                    concat(names, " of ", here.name,
                           " wants a gradient now, and was frozen when the model was sharded: thaw "
                           "it before; to thaw one in the middle, take the state_dict() first and "
                           "shard a plain model again, or go on so from a checkpoint"),
                    "fsdp");
  }
}

void FullyShardedDataParallel::State::before_forward(int unit) {
  if (context().grad_enabled) check_not_thawed(unit);
  if (summoned_) return;
  if (recomputing()) return run(schedule_.before_recompute(unit));
  const bool between = !schedule_.in_forward() && backward_number() == 0;
  if (unit == 0 && backward_number() == 0) ++forwards_;
  if (unit == 0 || between) actions.clear();
  for (int each = 0; each < static_cast<int>(units.size()); ++each) {
    if ((unit == 0 || each == unit) && schedule_.live(each) && stale(each)) {
      run(schedule_.drop(each));
    }
  }
  run(schedule_.before_forward(unit, context().grad_enabled));
}

void FullyShardedDataParallel::State::after_forward(int unit, bool wants) {
  if (summoned_) return;
  if (recomputing()) return schedule_.after_recompute(unit);
  run(schedule_.after_forward(unit, wants));
}

void FullyShardedDataParallel::State::check_not_left() const {
  const bool begun =
      (in_sync_ && buffer_sync_) ||
      std::any_of(units.begin(), units.end(), [](const Unit& unit) { return unit.reduced; });
  if (backward_ != 0 && backward_ != backward_number() && begun) {
    fail_everywhere(groups.all,
                    "an earlier backward was left by an exception; what it has begun to reduce "
                    "is lost, and the ranks cannot go on together",
                    "fsdp");
  }
}

void FullyShardedDataParallel::State::begin_backward() {
  check_not_left();
  backward_ = backward_number();
  in_sync_ = synchronizing;
  ++backwards_;
  after_backward([this] { end_backward(); });
  for (Unit& unit : units) {
    unit.reduced = false;
    for (FlatParameter& flat : unit.flats) {
      if (flat.plan().trained) flat.begin_backward();
    }
  }
  run(schedule_.begin_backward());
  if (buffer_sync_ && in_sync_) buffer_sync_->ask(concat("step ", backwards_));
}

void FullyShardedDataParallel::State::before_backward(int unit) {
  if (backward_ != backward_number()) begin_backward();
  if (!summoned_) run(schedule_.before_backward(unit));
  for (FlatParameter& flat : units[static_cast<std::size_t>(unit)].flats) {
    if (flat.plan().trained) flat.open_gradients();
  }
}

void FullyShardedDataParallel::State::on_complete(int unit) {
  Unit& here = units[static_cast<std::size_t>(unit)];
  if (here.reduced) {
    fail_everywhere(groups.all,
                    concat("step ", backwards_, ": a parameter of ", here.name,
                           " got another part of its gradient after it was reduced: it is used in "
                           "several segments that run a backward of their own; let these be "
                           "peal::checkpoint()'s, which bring a gradient once"),
                    "fsdp");
  }
  const bool all = std::all_of(here.flats.begin(), here.flats.end(), [](const FlatParameter& flat) {
    return !flat.plan().trained || flat.complete();
  });
  if (all) {
    here.reduced = in_sync_;
    run(schedule_.complete(unit, in_sync_));
  }
  groups.shards.progress();
  if (groups.replicas) groups.replicas.progress();
}

// Where some of a unit's gradients are to be reduced, all are.
void FullyShardedDataParallel::State::check_all_came(const Unit& unit) const {
  std::string missing, frozen;
  const auto add = [](std::string& list, const std::string& names) {
    if (!names.empty()) list += concat(list.empty() ? "" : ", ", names);
  };
  for (const FlatParameter& flat : unit.flats) {
    if (!flat.plan().trained) continue;
    add(missing, flat.waits() ? flat.missing() : flat.names());
    add(frozen, flat.changed());
  }
  if (missing.empty()) return;
  const std::string advice =
      frozen.empty()
          ? "freeze what is not trained before the model is sharded, or give it a unit of its own"
          : concat(frozen,
                   " was frozen after the model was sharded, which goes with whole units alone: "
                   "take the state_dict() before and shard a plain model again, or go on so from a "
                   "checkpoint");
  fail_everywhere(groups.all,
                  concat("step ", backwards_, ": ", missing, " of ", unit.name,
                         " got no gradient, and others of the unit did: ", advice),
                  "fsdp");
}

// Of units that have gradients from backwards without communication, and got none now.
void FullyShardedDataParallel::State::reduce_rest() {
  for (std::size_t u = units.size(); u-- > 0;) {
    Unit& unit = units[u];
    if (unit.reduced) continue;
    const bool some = std::any_of(unit.flats.begin(), unit.flats.end(), [](const auto& flat) {
      return flat.plan().trained && flat.has_some() && flat.waits();
    });
    if (!some) {
      for (FlatParameter& flat : unit.flats) {
        if (flat.plan().trained) flat.close_gradients();
      }
      continue;
    }
    check_all_came(unit);
    unit.reduced = true;
    run(schedule_.complete(static_cast<int>(u), true));
  }
}

void FullyShardedDataParallel::State::end_backward() {
  if (in_sync_) reduce_rest();
  run(schedule_.end_backward());
  finish_settled();
  for (Unit& unit : units) {
    for (FlatParameter& flat : unit.flats) {
      if (flat.plan().trained) flat.keep();
    }
  }
  if (buffer_sync_ && in_sync_) buffer_sync_->settle();
  backward_ = 0;
}

void FullyShardedDataParallel::State::run(const UnitActions& list) {
  for (const UnitAction& action : list) {
    actions.push_back(action);
    act(action);
  }
}

comm::Label FullyShardedDataParallel::State::label(int unit, std::size_t flat,
                                                   std::string_view what, bool apart) {
  const bool back = backward_ != 0;
  text_ = concat(apart ? "the whole model after " : "", back ? "backward " : "forward ",
                 back ? backwards_ : forwards_, ", ", what, " of ",
                 units[static_cast<std::size_t>(unit)].name);
  std::uint64_t call = tag;
  for (const std::uint64_t word : {forwards_, backwards_, static_cast<std::uint64_t>(unit), flat,
                                   what == "parameters" ? 1ul : 0ul, apart ? 1ul : 0ul}) {
    comm::mix(call, word);
  }
  return {text_, call};
}

// While replicas average the chunks of one unit the next is reduced.
void FullyShardedDataParallel::State::finish_settled() {
  Unit* const unit = std::exchange(settled_, nullptr);
  if (unit == nullptr) return;
  for (FlatParameter& flat : unit->flats) {
    if (flat.plan().trained) flat.finish();
  }
}

void FullyShardedDataParallel::State::act(const UnitAction& action) {
  using What = UnitAction::What;
  Unit& unit = units[static_cast<std::size_t>(action.unit)];
  if (action.what == What::settle) finish_settled();
  for (std::size_t f = 0; f < unit.flats.size(); ++f) {
    FlatParameter& flat = unit.flats[f];
    if (action.what == What::gather) {
      flat.gather(label(action.unit, f, "parameters"));
    } else if (action.what == What::use) {
      flat.wait();
    } else if (action.what == What::free) {
      flat.free();
    } else if (!flat.plan().trained) {
      continue;
    } else if (action.what == What::reduce) {
      flat.reduce(label(action.unit, f, "gradients"));
    } else {
      flat.settle(label(action.unit, f, "gradients between replicas"));
    }
  }
  if (action.what != What::settle) return;
  settled_ = &unit;
  if (!groups.replicas) finish_settled();
}

void FullyShardedDataParallel::State::check_idle(std::string_view what) const {
  PEAL_CHECK(backward_number() == 0, "[fsdp] ", what, ": a backward is under way");
  PEAL_CHECK(!summoned_, "[fsdp] ", what, ": the parameters are summoned already");
}

// What a forward without a backward has left, of any unit, may be older than the chunks.
void FullyShardedDataParallel::State::turn(bool to_masters) {
  for (int each = 0; each < static_cast<int>(units.size()); ++each) run(schedule_.drop(each));
  for (Unit& unit : units) {
    for (FlatParameter& flat : unit.flats) flat.turn(to_masters);
  }
}

void FullyShardedDataParallel::State::bring(int unit) {
  auto& flats = units[static_cast<std::size_t>(unit)].flats;
  for (std::size_t f = 0; f < flats.size(); ++f) {
    flats[f].gather(label(unit, f, "parameters", true));
  }
  for (FlatParameter& flat : flats) flat.wait();
}

void FullyShardedDataParallel::State::take_away(int unit) { act({UnitAction::What::free, unit}); }

void FullyShardedDataParallel::State::at_masters(const std::function<void()>& f) {
  turn(true);
  try {
    f();
  } catch (...) {
    for (Unit& unit : units) {
      for (FlatParameter& flat : unit.flats) {
        flat.abandon();
        flat.turn(false);
      }
    }
    throw;
  }
}

std::shared_ptr<void> FullyShardedDataParallel::State::summon(const std::shared_ptr<State>& state) {
  state->check_idle("summon_full_parameters");
  const int count = static_cast<int>(state->units.size());
  state->at_masters([&] {
    for (int unit = 0; unit < count; ++unit) state->bring(unit);
  });
  state->summoned_ = true;
  return {nullptr, [state, count](void*) {
            state->summoned_ = false;
            for (int unit = 0; unit < count; ++unit) {
              for (FlatParameter& flat : state->units[static_cast<std::size_t>(unit)].flats) {
                flat.write_back();
              }
              state->take_away(unit);
            }
            state->turn(false);
          }};
}

}  // namespace peal::nn
