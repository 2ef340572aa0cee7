// SPDX-License-Identifier: Apache-2.0
// The learner's model on all ranks, and back.
#include <peal/launch/training/learner/learner.h>
#include <peal/nn/parallel/ddp.h>
#include <peal/nn/parallel/sync_batch_norm.h>

#include <utility>

namespace peal::launch {
namespace {

// Puts back what was there, whatever ends it; sends nothing, since other ranks may be gone.
struct Wrapped {
  explicit Wrapped(Learner& l) : learner(l), module(l.model) {}
  ~Wrapped() {
    learner.model = nn::Module();
    for (auto& [path, norm] : norms) {
      norm.train(module.get_submodule(path).training());
      module.replace_child(path, norm);
    }
    learner.model = module;
  }
  Wrapped(const Wrapped&) = delete;
  Wrapped& operator=(const Wrapped&) = delete;

  Learner& learner;
  nn::Module module;
  std::vector<std::pair<std::string, nn::Module>> norms;
};

}  // namespace

std::shared_ptr<void> Learner::distrib_ctx(const DistribOptions& options) {
  if (job.world() == 1 || model.as<nn::DistributedDataParallel>() != nullptr) return nullptr;
  auto wrapped = std::make_shared<Wrapped>(*this);
  if (options.sync_bn) {
    for (auto& [path, module] : model.named_modules()) {
      nn::Module here = module;
      if (path.empty() || here.as<nn::BatchNorm>() == nullptr) continue;
      if (here.as<nn::SyncBatchNorm>() == nullptr) wrapped->norms.emplace_back(path, here);
    }
    nn::convert_sync_batchnorm(model, job.group());
  }
  model = nn::DistributedDataParallel(model, job.group());
  return wrapped;
}

}  // namespace peal::launch
