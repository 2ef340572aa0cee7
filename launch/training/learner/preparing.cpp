// SPDX-License-Identifier: Apache-2.0
// What the loop trains, as its Accelerator prepares it, and back.
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/launch/training/learner/loop.h>

#include <map>
#include <string>
#include <utility>

namespace peal::launch {

Loop::Loop(Job& j, AcceleratorOptions options) : job(j) { accelerate(std::move(options)); }

void Loop::accelerate(AcceleratorOptions options) {
  PEAL_CHECK(!prepared_,
             "[launch] learner: precision, device and strategy are chosen before a run");
  PEAL_CHECK(options.gradient_accumulation_steps == 1,
             "[launch] learner: gradient_accumulation_steps ", options.gradient_accumulation_steps,
             ": a callback says which batch ends a step; take GradientAccumulation");
  PEAL_CHECK(options.even_batches,
             "[launch] learner: even_batches = false: each batch is a step of all ranks, so they "
             "have equally many; leave it out");
  options_ = std::move(options);
  accelerator_.reset();
}

Accelerator& Loop::accelerator() {
  if (!accelerator_) accelerator_ = std::make_unique<Accelerator>(job, options_);
  return *accelerator_;
}

void Loop::share_loaders(Start start) {
  PEAL_CHECK(training_loader != nullptr, "[launch] learner: there is no loader to train with");
  const auto way = options_.split_batches ? data::Way::split : data::Way::batches;
  training_loader = &shares_.to_train(job, *training_loader, start, way);
  if (validation_loader == nullptr) return;
  validation_loader = &shares_.to_validate(job, *validation_loader);
}

void Loop::prepare() {
  model.zero_grad();
  plain_ = model;
  try {
    auto [trained, stepped] = accelerator().prepare(plain_, *optimizer);
    prepared_model_.emplace(trained);
    prepared_.emplace(stepped);
    model = trained;
  } catch (...) {
    accelerator().free_memory();
    throw;
  }
}

std::shared_ptr<void> Loop::whole_model() {
  go_to_training(false);
  return prepared_model_ ? prepared_model_->whole() : nullptr;
}

void Loop::go_to_training(bool trains) {
  if (!optimizer) return;
  if (trains) {
    optimizer->train();
  } else {
    optimizer->eval();
  }
}

// Of "fsdp" what a rank has of the model goes with the wrapper; of others a step under way may have
// left each rank buffers of its own.
void Loop::release() {
  if (!prepared_) return;
  go_to_training(false);
  std::map<std::string, Tensor> values;
  if (prepared_model_->fsdp() == nullptr) {
    static_cast<void>(whole_model());
  } else {
    prepared_model_->fsdp()->sync_buffers();
    for (auto& [name, tensor] : prepared_model_->state_dict()) values[name] = tensor;
  }
  Loop::abandon();
  if (values.empty()) return;
  for (const auto& [name, parameter] : model.named_parameters()) parameter.rebind(values.at(name));
}

void Loop::abandon() noexcept {
  if (!prepared_) return;
  for (Tensor* each : {&output, &loss}) {  // how they were computed holds on to the wrapper
    if (each->defined()) *each = each->detach();
  }
  model = plain_;
  prepared_model_.reset();
  prepared_.reset();
  accelerator_->free_memory();
}

}  // namespace peal::launch
