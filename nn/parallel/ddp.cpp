// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/factory.h>
#include <peal/comm/group/agree.h>
#include <peal/comm/schedule/mix.h>
#include <peal/nn/parallel/buffer_sync.h>
#include <peal/nn/parallel/ddp.h>
#include <peal/nn/parallel/explain.h>
#include <peal/nn/parallel/make_equal.h>
#include <peal/nn/parallel/members.h>
#include <peal/nn/parallel/replica_check.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace peal::nn {
namespace {

bool among(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

NamedTensors without(const NamedTensors& tensors, const std::vector<std::string>& ignored) {
  NamedTensors rest;
  for (const auto& [name, tensor] : tensors) {
    if (!among(ignored, name)) rest.emplace_back(name, tensor);
  }
  return rest;
}

// Error for a name that is none of the model's: it was to change something.
void check_names(std::string_view what, const std::vector<std::string>& names,
                 const NamedTensors& parameters, const NamedTensors& buffers) {
  for (const std::string& name : names) {
    const auto is = [&](const auto& tensor) { return tensor.first == name; };
    PEAL_CHECK(std::any_of(parameters.begin(), parameters.end(), is) ||
                   std::any_of(buffers.begin(), buffers.end(), is),
               "[ddp] ", what, " has ", name, ", which the model has not");
  }
}

std::vector<ParameterSpec> specs_of(const NamedTensors& parameters, const DDPOptions& options) {
  std::vector<ParameterSpec> specs;
  for (const auto& [name, tensor] : parameters) {
    specs.push_back({name, tensor.shape(), tensor.dtype(), tensor.requires_grad(),
                     among(options.delayed, name)});
  }
  return specs;
}

std::vector<int> numbers_of(const std::vector<std::string>& names, const NamedTensors& parameters) {
  std::vector<int> numbers;
  for (const std::string& name : names) {
    const auto found = std::find_if(parameters.begin(), parameters.end(),
                                    [&](const auto& tensor) { return tensor.first == name; });
    if (found != parameters.end()) numbers.push_back(static_cast<int>(found - parameters.begin()));
  }
  return numbers;
}

// Names of one tensor: a rank that ties others trains another model.
std::string ties_of(const Module& module, const DDPOptions& options) {
  std::unordered_map<const void*, std::string> first;
  std::string text;
  for (const auto& [name, tensor] : module.state_dict()) {
    if (tensor.numel() == 0 || among(options.ignored, name)) continue;
    const auto [found, added] = first.emplace(tensor.raw(), name);
    if (!added) text += concat("tied ", name, " is ", found->second, "\n");
  }
  return text;
}

std::string describe(const NamedTensors& buffers, const DDPOptions& options) {
  std::string text;
  for (const auto& [name, tensor] : buffers) {
    text += concat("buffer ", name, " ", tensor.dtype(), " ", tensor.shape(), "\n");
  }
  for (const auto& [what, names] :
       {std::pair("ignored ", &options.ignored), std::pair("delayed ", &options.delayed),
        std::pair("order ", &options.order)}) {
    for (const std::string& name : *names) text += concat(what, name, "\n");
  }
  return text + concat("broadcast_buffers ", options.broadcast_buffers, "\nfind_unused_parameters ",
                       options.find_unused_parameters, "\nstatic_graph ", options.static_graph,
                       "\ncheck_every ", options.check_every, "\n");
}

}  // namespace

struct DistributedDataParallel::State {
  State(const Module& module, const NamedTensors& parameters, std::vector<ParameterSpec> specs,
        std::vector<Bucket> plan, const NamedTensors& buffers, const DDPOptions& options,
        const comm::ProcessGroup& group, std::uint64_t tag)
      : group(group),
        options(options),
        specs(std::move(specs)),
        members(module, group, options.broadcast_buffers, options.ignored),
        replicas(with_buffers(parameters, buffers, options), group, options.check_every),
        reducer(parameters, std::move(plan), group, tag,
                {options.find_unused_parameters, options.static_graph}) {
    const bool any = options.broadcast_buffers && !buffers.empty();
    if (group.world() > 1 && any) buffer_sync.emplace(buffers, group, tag);
    reducer.set_listener({.begin =
                              [this] {
                                if (buffer_sync) buffer_sync->ask();
                              },
                          .visited = [this] { members.check(); },
                          .end =
                              [this] {
                                settle();
                                replicas.count_step(reducer.step());
                              }});
  }

  static NamedTensors with_buffers(NamedTensors tensors, const NamedTensors& buffers,
                                   const DDPOptions& options) {
    if (options.broadcast_buffers) tensors.insert(tensors.end(), buffers.begin(), buffers.end());
    return tensors;
  }

  void settle() {
    if (buffer_sync) buffer_sync->settle();
    stale = false;
  }

  // What is decided here is the same on all ranks: it rests on calls that all of them make.
  void before_forward(bool training) {
    if (!reducer.synchronizing()) return;
    if (training && context().grad_enabled) members.check();
    if (stale && buffer_sync) {
      announce(group, {.what = Announcement::What::buffers});
      buffer_sync->ask();
      settle();
    }
    stale = training;
  }

  void follow(const Announcement& where) {
    if (where.what == Announcement::What::next) stale = where.stale;
    if (where.what != Announcement::What::buffers) return reducer.follow(where);
    buffer_sync->ask();
    settle();
  }

  const comm::ProcessGroup group;
  const DDPOptions options;
  const std::vector<ParameterSpec> specs;
  Members members;
  ReplicaCheck replicas;
  std::optional<BufferSync> buffer_sync;
  bool stale = false;  // a forward in training came since buffers were equal
  Reducer reducer;     // the last: it calls the rest
};

DistributedDataParallel::DistributedDataParallel(Module module, comm::ProcessGroup group,
                                                 const DDPOptions& options)
    : Module(std::move(module)) {
  PEAL_CHECK(
      bool(group),
      "[ddp] expected a process group, got none; where this is one of new_group() or split(), "
      "the rank is not in it, and wraps nothing");
  stay();
  const NamedTensors all = named_parameters(), all_buffers = named_buffers();
  check_names("ignored", options.ignored, all, all_buffers);
  check_names("delayed", options.delayed, all, {});
  check_names("order", options.order, all, {});
  const NamedTensors parameters = without(all, options.ignored),
                     buffers = without(all_buffers, options.ignored);
  const auto specs = specs_of(parameters, options);
  const std::vector<int>& node = group.nodes().node;
  const bool several_nodes = std::ranges::any_of(node, [&](int n) { return n != node[0]; });
  auto plan =
      plan_buckets(specs, options.buckets, several_nodes, numbers_of(options.order, parameters));
  comm::agree(group, "[ddp] the model",
              describe(buffers, options) + ties_of(*this, options) + nn::describe(specs, plan),
              "build the same model with the same options on every rank");
  make_equal(group, parameters);
  make_equal(group, buffers);
  std::uint64_t tag = 0;
  comm::mix(tag, group.sequence());
  const Module plain = static_cast<const Module&>(*this);
  state_ = std::make_shared<State>(plain, parameters, specs, std::move(plan), buffers, options,
                                   group, tag);
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

void DistributedDataParallel::sync_buffers() {
  if (state_->buffer_sync) state_->buffer_sync->send_all();
  state_->stale = false;
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

std::string DistributedDataParallel::explain() const {
  return nn::explain(state_->group, state_->options, state_->specs, state_->reducer);
}

void DistributedDataParallel::backward(const Tensor& loss, double samples) {
  const auto weighed = state_->reducer.weigh(samples, loss.dtype());
  loss.backward(full(loss.shape(), weighed.factor, loss.dtype(), loss.device()));
}

void DistributedDataParallel::set_actives(int divisor, int lowest) {
  state_->reducer.divide_by(divisor);
  if (state_->buffer_sync) state_->buffer_sync->set_root(lowest);
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
