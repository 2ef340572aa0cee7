// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/grad_slot.h>
#include <peal/comm/group/agree.h>
#include <peal/comm/schedule/mix.h>
#include <peal/nn/parallel/fail_everywhere.h>
#include <peal/nn/parallel/make_equal.h>
#include <peal/nn/parallel/planning.h>
#include <peal/nn/parallel/sharded/fsdp_state.h>

#include <algorithm>
#include <utility>

namespace peal::nn {
namespace {

bool is_among(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void check_shardable(NamedTensors parameters, const std::vector<std::string>& ignored) {
  std::erase_if(parameters, [&](const auto& each) { return is_among(ignored, each.first); });
  for (const auto& [name, tensor] : parameters) {
    const auto& [first, leader] = parameters.front();
    PEAL_CHECK(tensor.device() == leader.device(), name, " lies on ", tensor.device(), ", and ",
               first, " on ", leader.device(), "; a sharded model lies on one device");
    if (!tensor.requires_grad()) continue;
    PEAL_CHECK(
        !tensor.grad_slot().has_final_hook(), name,
        " already belongs to a distributed wrapper; destroy that one first, and shard the whole "
        "model once: FSDPOptions::wrap names the modules that are units of their own");
    PEAL_CHECK(!tensor.grad().defined(), name,
               " has a gradient; call zero_grad() before the model is wrapped");
  }
}

// Such a parameter is made before the unit is gathered, of parameters that would not be there.
void check_computes_nothing(const Module& model, const std::vector<UnitPlan>& units) {
  for (const UnitPlan& unit : units) {
    const Module module = model.get_submodule(unit.path);
    PEAL_CHECK(!module.computes_parameters(), name_of(unit), " is a ", module.class_name(),
               " whose weight is computed of its parameters before its forward (weight_norm, "
               "spectral_norm), and so before they are gathered: let the unit be a module around "
               "it");
  }
}

void check_precision(const MixedPrecision& settings) {
  check(settings);
  PEAL_CHECK(!settings.keep_low_precision_grads,
             "mixed_precision: keep_low_precision_grads is DistributedDataParallel's; a sharded "
             "gradient is in its master's type");
}

// Of the ranks in this one's row and column; the others look at theirs.
ShardGroups groups_of(const comm::ProcessGroup& group, const comm::DeviceMesh& mesh) {
  if (mesh.ndim() == 0) return {group, group};
  PEAL_CHECK(mesh.ndim() == 2, "device_mesh: expected two dimensions, replicas and shards, got ",
             mesh.describe(), "; for shards alone leave it out");
  const auto names = mesh.mesh_dim_names();
  const comm::ProcessGroup replicas = mesh.get_group(names[0]), shards = mesh.get_group(names[1]);
  bool fits = mesh.size() == group.world();
  for (int r = 0; fits && r < replicas.world(); ++r) {
    fits = replicas.global_rank(r) == group.global_rank(r * shards.world() + shards.rank());
  }
  for (int s = 0; fits && s < shards.world(); ++s) {
    fits = shards.global_rank(s) == group.global_rank(replicas.rank() * shards.world() + s);
  }
  PEAL_CHECK(fits, "device_mesh: ", mesh.describe(), " is not of this group of ", group.world(),
             " ranks: make it of the group that the model is given");
  if (replicas.world() == 1) return {group, shards};
  return {group, shards, replicas};
}

std::string describe(const ShardGroups& groups) {
  return groups.replicas
             ? concat(groups.replicas.world(), " replicas of ", groups.shards.world(), " shards\n")
             : std::string();
}

std::string compared(const ModelOutline& outline, const std::vector<UnitPlan>& units,
                     const MemberList& members, const FSDPOptions& options, int world) {
  std::string text = describe(outline.parameters, {}) + describe(outline, units, world);
  for (const auto& [name, tensor] : members.buffers) {
    text += concat("buffer ", name, " ", tensor.dtype(), " ", tensor.shape(), "\n");
  }
  text += "device_mesh";
  for (std::size_t d = 0; d < options.device_mesh.shape().size(); ++d) {
    text +=
        concat(" ", options.device_mesh.mesh_dim_names()[d], " ", options.device_mesh.shape()[d]);
  }
  text += "\n";
  for (const std::string& path : options.ignored_modules) text += "ignored " + path + "\n";
  return text + concat("broadcast_buffers ", options.broadcast_buffers, "\nreshard_after_forward ",
                       options.schedule.reshard_after_forward, "\nforward_prefetch ",
                       options.schedule.forward_prefetch, "\nbackward_prefetch ",
                       options.schedule.backward_prefetch, "\nmixed_precision ",
                       dtypes_of(options.mixed_precision), "\noffload_params ",
                       options.cpu_offload.offload_params, "\n");
}

}  // namespace

FullyShardedDataParallel::FullyShardedDataParallel(Module wrapped, comm::ProcessGroup group,
                                                   const FSDPOptions& options)
    : Module(std::move(wrapped)) {
  PEAL_CHECK(bool(group),
             "[fsdp] expected a process group, got none; where this is one of new_group() or "
             "split(), the rank is not in it, and wraps nothing");
  stay();
  const Module plain = static_cast<const Module&>(*this);
  ModelOutline outline;
  std::vector<UnitPlan> units;
  MemberList members;
  std::vector<std::string> ignored;
  ShardGroups groups{group, group};
  const std::string obstacle = why_not([&] {
    check_precision(options.mixed_precision);
    CutParameters(plain).check_apart(group);
    ignored = names_within(plain, options.ignored_modules);
    check_shardable(plain.named_parameters(), ignored);
    members = Members(plain, ignored).list();
    outline = outline_of(plain, members);
    groups = groups_of(group, options.device_mesh);
    units = plan_units(outline, options.wrap, groups.shards.world());
    check_computes_nothing(plain, units);
  });
  comm::agree_unless(group, "[fsdp] the model",
                     compared(outline, units, members, options, groups.shards.world()), obstacle,
                     "build the same model with the same options on every rank");
  std::vector<std::pair<Module, std::vector<std::uint64_t>>> hooked;
  try {  // from here on the model is changed
    make_equal(group, members.buffers);
    if (options.mixed_precision.buffer_dtype) {
      convert_buffers(members.buffers, *options.mixed_precision.buffer_dtype);
    }
    std::uint64_t tag = 1;
    comm::mix(tag, group.sequence());
    NamedTensors left_alone;
    for (const auto& each : plain.named_parameters()) {
      if (is_among(ignored, each.first)) left_alone.push_back(each);
    }
    make_values(group, left_alone, "fsdp");
    state_ = std::make_shared<State>(plain, options, members, std::move(outline), std::move(units),
                                     std::move(groups), tag);
    state_->ignored = std::move(left_alone);
    for (std::size_t u = 0; u < state_->plan.size(); ++u) {
      Module module = plain.get_submodule(state_->plan[u].path);
      auto ids = State::hook(state_, module, static_cast<int>(u));
      hooked.emplace_back(std::move(module), std::move(ids));
    }
  } catch (...) {
    rethrow_everywhere(group, "the model could not be sharded", "fsdp");
  }
  hooks_ = std::shared_ptr<void>(nullptr, [hooked = std::move(hooked)](void*) mutable {
    for (auto& [module, ids] : hooked) {
      for (const std::uint64_t id : ids) module.remove_hook(id);
    }
  });
}

NamedTensors FullyShardedDataParallel::local_parameters() const {
  NamedTensors all = state_->pieces();
  all.insert(all.end(), state_->ignored.begin(), state_->ignored.end());
  return all;
}

NamedTensors FullyShardedDataParallel::State::pieces() const {
  NamedTensors all(outline.parameters.size());
  for (const Unit& unit : units) {
    for (const FlatParameter& flat : unit.flats) {
      for (std::size_t e = 0; e < flat.pieces().size(); ++e) {
        all[static_cast<std::size_t>(flat.plan().entries[e].parameter)] = flat.pieces()[e];
      }
    }
  }
  return all;
}

FullyShardedDataParallel::NoSync::NoSync(std::shared_ptr<State> state)
    : state_(std::move(state)), before_(std::exchange(state_->synchronizing, false)) {}

FullyShardedDataParallel::NoSync::~NoSync() { state_->synchronizing = before_; }

FullyShardedDataParallel::NoSync FullyShardedDataParallel::no_sync() { return NoSync(state_); }

std::shared_ptr<void> FullyShardedDataParallel::summon_full_parameters() {
  return State::summon(state_);
}

void FullyShardedDataParallel::sync_buffers() { state_->sync_buffers(); }

// Who bring a state together: those that have parts of it.
const comm::ProcessGroup& FullyShardedDataParallel::State::savers() const {
  return cuts && groups.all.world() == 1 ? cuts.group() : groups.all;
}

ShardedState FullyShardedDataParallel::saved() const {
  FullyShardedDataParallel fsdp = *this;
  return ShardedState(
      state_->savers(), "the model",
      [state = state_](std::optional<int> to) {
        state->check_idle("state_dict");
        return state->gathered(to);
      },
      [fsdp](const NamedTensors& given) mutable { fsdp.load_state_dict(given); },
      State::local_state(state_));
}

ShardedState FullyShardedDataParallel::saved(Optimizer& optimizer) const {
  return ShardedState(
      state_->savers(), "the optimizer",
      [state = state_, &optimizer](std::optional<int> to) {
        return state->gathered(optimizer, to);
      },
      [fsdp = *this, &optimizer](const NamedTensors& given) {
        fsdp.load_optimizer_state_dict(optimizer, given);
      },
      State::local_state(state_, optimizer));
}

const std::vector<UnitPlan>& FullyShardedDataParallel::units() const { return state_->plan; }

const UnitActions& FullyShardedDataParallel::actions() const { return state_->actions; }

std::string FullyShardedDataParallel::explain() const {
  const MixedPrecision& precision = state_->options.mixed_precision;
  return describe(state_->outline, state_->plan, state_->groups.shards.world()) +
         describe(state_->groups) +
         (precision.any() ? concat("mixed precision: ", dtypes_of(precision), "\n") : "") +
         (state_->options.cpu_offload.offload_params ? "pieces are in the host's memory\n" : "");
}

const comm::ProcessGroup& FullyShardedDataParallel::group() const { return state_->groups.all; }

}  // namespace peal::nn
