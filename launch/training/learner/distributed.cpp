// SPDX-License-Identifier: Apache-2.0
// The learner's model and optimizer on all ranks, and back.
#include <peal/launch/training/learner/learner.h>
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
  for (auto& [path, module] : model.named_modules()) {
    nn::Module here = module;
    if (path.empty() || here.as<nn::BatchNorm>() == nullptr) continue;
    if (here.as<nn::SyncBatchNorm>() == nullptr) converted->norms.emplace_back(path, here);
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
}

void Learner::release() {
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
