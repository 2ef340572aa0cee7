// SPDX-License-Identifier: Apache-2.0
// The learner's model and optimizer on all ranks, and back.
#include <peal/launch/training/learner/learner.h>
#include <peal/nn/named_places.h>
#include <peal/nn/parallel/sync_batch_norm.h>

#include <utility>

namespace peal::launch {
namespace {

// Puts back what was there, whatever ends it; sends nothing, since other ranks may be gone.
struct Converted {
  explicit Converted(nn::Module m) : module(std::move(m)) {}
  ~Converted() {
    for (auto& [path, norm] : norms) {
      norm.train(module.get_submodule(path).training());
      module.replace_child(path, norm);
    }
  }
  Converted(const Converted&) = delete;
  Converted& operator=(const Converted&) = delete;

  nn::Module module;
  std::vector<std::pair<std::string, nn::Module>> norms;
};

}  // namespace

std::shared_ptr<void> Learner::distrib_ctx(const DistribOptions& options) {
  if (job.world() == 1 || !context_.expired()) return nullptr;
  auto converted = std::make_shared<Converted>(model);
  context_ = converted;
  if (!options.sync_bn) return converted;
  for (auto& [path, module] : nn::named_places(model)) {
    if (module.as<nn::BatchNorm>() == nullptr) continue;
    if (module.as<nn::SyncBatchNorm>() == nullptr) converted->norms.emplace_back(path, module);
  }
  nn::convert_sync_batchnorm(model, job.group());
  return converted;
}

// An optimizer that is shared out, or whose parameters are exchanged for pieces, is made anew.
void Learner::prepare() {
  NamedTensors state;
  if (shards_optimizer()) {
    state = optimizer->state_dict();
    optimizer.reset();
    create_optimizer();
  }
  Loop::prepare();
  if (!state.empty()) prepared_optimizer()->load_state_dict(state);
  // A fit need not learn again what the last one has: its second step would make new buckets.
  auto* const ddp = prepared_model()->ddp();
  if (ddp != nullptr && are_those_that_learn(order_)) ddp->set_order(order_);
}

bool Learner::are_those_that_learn(const std::vector<std::string>& names) const {
  const std::set<std::string> all(names.begin(), names.end());
  std::size_t learn = 0;
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (!parameter.requires_grad()) continue;
    if (!all.contains(name)) return false;
    ++learn;
  }
  return learn > 0 && learn == all.size();
}

void Learner::release() {
  if (const auto* const ddp = prepared_model() != nullptr ? prepared_model()->ddp() : nullptr) {
    order_ = ddp->order();
  }
  if (prepared_optimizer() == nullptr || !shards_optimizer()) return Loop::release();
  NamedTensors state;
  if (accelerator().strategy() == Strategy::fsdp) {
    state = prepared_optimizer()->state_dict();
  } else {
    for (int to = 0; to < job.world(); ++to) {
      prepared_optimizer()->consolidate_state_dict(to);
      if (to == job.rank()) state = prepared_optimizer()->state_dict();
    }
  }
  Loop::release();
  optimizer.reset();
  create_optimizer();
  optimizer->load_state_dict(state);
}

void Learner::abandon() noexcept {
  if (prepared_optimizer() == nullptr) return;
  Loop::abandon();
  if (shards_optimizer()) optimizer.reset();
}

}  // namespace peal::launch
