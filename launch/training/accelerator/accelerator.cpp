// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/failure_words.h>
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/tape.h>
#include <peal/comm/group/agree.h>
#include <peal/launch/training/accelerator/accelerator.h>
#include <peal/nn/optim/clip_grad.h>

#include <algorithm>

namespace peal::launch {
namespace {

std::string in_text(const AcceleratorOptions& options) {
  std::string trackers;
  for (const LogWith& each : options.log_with) trackers += concat("log_with ", each.name, "\n");
  return trackers + concat("strategy ", options.strategy, "\nmixed_precision ",
                           options.mixed_precision, "\ngradient_accumulation_steps ",
                           options.gradient_accumulation_steps, "\nlast_group ",
                           static_cast<int>(options.last_group), "\nsplit_batches ",
                           options.split_batches, "\neven_batches ", options.even_batches,
                           "\nscheduler_counts_updates ", options.scheduler_counts_updates, "\n");
}

// What optimizers have in the place of these: a sharded model's pieces, or themselves.
std::vector<Tensor> as_trained(const GradientState& state, std::vector<Tensor> parameters) {
  for (const auto& model : state.models) {
    nn::FullyShardedDataParallel* const sharded = PreparedModel(model).fsdp();
    if (sharded == nullptr || !any_is_of(*model, parameters)) continue;
    for (const auto& [name, piece] : sharded->local_parameters()) parameters.push_back(piece);
  }
  return parameters;
}

bool trains_any(const OptimizerBody& optimizer, const std::vector<Tensor>& trained) {
  const auto& theirs = optimizer.inner.parameters();
  return std::any_of(trained.begin(), trained.end(), [&](const Tensor& each) {
    return std::any_of(theirs.begin(), theirs.end(),
                       [&](const Tensor& other) { return other.same_as(each); });
  });
}

}  // namespace

Accelerator::Accelerator(Job& job, AcceleratorOptions options)
    : job_(job), options_(std::move(options)) {
  std::optional<Accumulation> groups;
  std::optional<DType> precision;
  const std::string wrong = failure_in([&] {
    strategy_ = strategy_of(options_.strategy, job.world());
    precision = precision_of(options_.mixed_precision);
    trackers_.emplace(options_.log_with);
    groups.emplace(options_.gradient_accumulation_steps, options_.last_group);
  });
  comm::agree_unless(job.group(), "[accelerator] the options", in_text(options_), wrong,
                     "give all ranks the same");
  if (!options_.device.empty()) device_ = job.device(options_.device);
  state_ = std::make_shared<GradientState>(job.group(), *groups,
                                           options_.gradient_accumulation_steps, precision);
}

Accelerator::Turn Accelerator::accumulate(const std::vector<std::shared_ptr<ModelBody>>& models) {
  GradientState& state = *state_;
  // Outside of a loader nobody knows which batch is the last: there is always another.
  state.turn = state.groups.next(state.loaders.empty() ? state.accumulation_steps : state.left());
  state.trained = models.size() == 1 ? models[0] : nullptr;
  std::vector<std::shared_ptr<void>> local;
  for (const auto& model : models) {
    if (!state.sync()) local.push_back(PreparedModel(model).no_sync());
  }
  return Turn(state_, std::move(local));
}

Accelerator::Turn Accelerator::turn(const PreparedModel& model, bool ends_step) {
  state_->turn = state_->groups.told(ends_step);
  state_->trained = model.body();
  std::vector<std::shared_ptr<void>> local;
  if (!ends_step) local.push_back(PreparedModel(model).no_sync());
  return Turn(state_, std::move(local));
}

void Accelerator::set_gradient_accumulation_steps(std::int64_t steps) {
  std::string wrong;
  if (state_->groups.is_open()) wrong = "a step is under way; call it after the batch that ends it";
  if (steps < 1) wrong = concat("expected 1 or more, got ", steps);
  comm::agree_unless(job_.group(), "[accelerator] set_gradient_accumulation_steps",
                     std::to_string(steps), wrong, "give all ranks the same");
  options_.gradient_accumulation_steps = state_->accumulation_steps = steps;
  state_->groups = Accumulation(steps, options_.last_group);
}

std::shared_ptr<ModelBody> Accelerator::model_of_backward() {
  GradientState& state = *state_;
  auto model = state.trained.lock();
  if (!model && state.models.size() == 1) model = state.models[0];
  const auto& all = state.optimizers;
  const bool any = std::any_of(all.begin(), all.end(), [](const auto& o) { return o->unscaled; });
  if (!model || !any) return model;
  std::vector<Tensor> own;
  for (const auto& [name, parameter] : model->before) own.push_back(parameter);
  const std::vector<Tensor> trained = as_trained(state, std::move(own));
  for (const auto& each : all) {
    PEAL_CHECK(!each->unscaled || !trains_any(*each, trained),
               "[accelerator] backward: with mixed_precision 'fp16' the model's gradients were "
               "clipped, and no step followed; new ones, which are scaled, cannot be added to "
               "them; call the optimizer's step() (it leaves out what is not finite), or its "
               "zero_grad() in the same turn");
  }
  return model;
}

void Accelerator::backward(const Tensor& loss) {
  GradientState& state = *state_;
  state.update_scaler();
  if (!state.turn.wanted) return;
  const auto model = model_of_backward();
  const Tensor scaled = state.scaler.scale(loss);
  if (model) return PreparedModel(model).backward(scaled, state.samples());
  (state.turn.group > 1 ? mul(scaled, 1.0 / static_cast<double>(state.turn.group)) : scaled)
      .backward();
}

void Accelerator::backward(const Tensor& loss, double samples) {
  GradientState& state = *state_;
  state.update_scaler();
  if (!state.turn.wanted) return;
  const auto model = model_of_backward();
  PEAL_CHECK(model, "[accelerator] backward: ", samples,
             " samples were named, and the turn is not of one prepared model (",
             state.models.size(),
             " are prepared), whose gradients could be weighed by them; take "
             "accumulate(model) of the one, or backward(loss)");
  PreparedModel(model).backward(state.scaler.scale(loss), samples);
}

// Other optimizers' gradients are of another step, or of none yet.
void Accelerator::unscale_gradients_of(const std::vector<Tensor>& parameters) {
  if (state_->lowered != DType::f16) return;
  const std::vector<Tensor> trained = as_trained(*state_, parameters);
  for (const auto& each : state_->optimizers) {
    if (trains_any(*each, trained)) unscale(*state_, *each);
  }
}

Tensor Accelerator::clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm,
                                    double norm_type) {
  if (!state_->sync()) return {};
  unscale_gradients_of(parameters);
  for (const auto& model : state_->models) {
    if (are_all_of(*model, parameters)) {
      return PreparedModel(model).clip_grad_norm_(max_norm, norm_type);
    }
  }
  PEAL_CHECK(strategy_ != Strategy::zero2 && strategy_ != Strategy::fsdp,
             "[accelerator] clip_grad_norm_: with the strategy '", word_of(strategy_),
             "' each rank has a part of the gradients, and a norm is that of all parameters of one "
             "prepared model; got ",
             parameters.size(), " others; give it model.parameters()");
  return nn::clip_grad_norm_(parameters, max_norm, norm_type);
}

void Accelerator::clip_grad_value_(const std::vector<Tensor>& parameters, double bound) {
  if (!state_->sync()) return;
  unscale_gradients_of(parameters);
  std::vector<Tensor> here;
  for (const auto& model : state_->models) {
    nn::FullyShardedDataParallel* const sharded = PreparedModel(model).fsdp();
    if (sharded == nullptr || !any_is_of(*model, parameters)) continue;
    PEAL_CHECK(are_all_of(*model, parameters),
               "[accelerator] clip_grad_value_: with the strategy 'fsdp' give it all parameters of "
               "one prepared model, model.parameters()");
    for (const auto& [name, piece] : sharded->local_parameters()) here.push_back(piece);
    return nn::clip_grad_value_(here, bound);
  }
  nn::clip_grad_value_(parameters, bound);
}

bool Accelerator::optimizer_step_was_skipped() const {
  const auto& all = state_->optimizers;
  return std::any_of(all.begin(), all.end(), [](const auto& each) { return each->skipped; });
}

}  // namespace peal::launch
