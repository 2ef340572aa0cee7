// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/training/learner/learner.h>
#include <peal/launch/training/learner/mixup.h>
#include <peal/launch/training/loss_items.h>
#include <peal/launch/training/norms.h>
#include <peal/nn/optim/adam.h>

#include <algorithm>
#include <utility>

namespace peal::launch {
namespace {

bool begins_with_path(const std::string& name, const std::string& path) {
  return path.empty() || name == path || name.starts_with(path + ".");
}

// By the targets that its loss counts; of a batch that is mixed by samples.
double items_of_loss(const Loop& loop, const data::Batch& batch) {
  const auto counts = counts_of(loop.loss_function);
  const bool by_targets = counts && batch.y.defined() && batch.y.dtype() == DType::i64;
  const auto mixes = [](const auto& each) {
    return dynamic_cast<const MixHandler*>(each.get()) != nullptr;
  };
  if (!by_targets || (loop.training && std::ranges::any_of(loop.callbacks, mixes)))
    return static_cast<double>(batch.size());
  return counts->of(batch.y);
}

OptimizerFactory fastai_adam() {
  return optimizer_of<nn::AdamW>(
      nn::AdamWOptions{.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-5, .weight_decay = 0.01});
}

}  // namespace

Learner::Learner(Job& j, Loaders loaders, nn::Module m, LearnerOptions options)
    : Loop(j, {.device = options.device,
               .strategy = options.strategy,
               .ddp = options.ddp,
               .fsdp = options.fsdp}),
      options_(std::move(options)),
      recorder_(std::make_shared<Recorder>(options_.metrics, options_.tell)) {
  model = std::move(m);
  loss_function = options_.loss;
  forward = options_.forward;
  items = [this](const data::Batch& given) { return items_of_loss(*this, given); };
  training_loader = loaders.training;
  validation_loader = loaders.validation;
  callbacks = options_.callbacks;
  callbacks.push_back(recorder_);
  PEAL_CHECK(loss_function, "[launch] learner: there is no loss; name one (.loss)");
  reading_ = reading_of(loss_function);
  if (options_.activation) {
    reading_.activation_name = "own";
    reading_.activation = options_.activation;
  }
  if (options_.decodes) reading_.decodes = options_.decodes;
  if (options_.moms.empty()) options_.moms = {0.95, 0.85, 0.95};
  PEAL_CHECK(options_.moms.size() == 3, "[launch] learner: expected 3 momenta, got ",
             options_.moms.size());
  auto paths = options_.groups;
  if (paths.empty()) paths = {{""}};
  groups_.resize(paths.size());
  for (const auto& [name, parameter] : model.named_parameters()) {
    int found = 0;
    for (std::size_t g = 0; g < paths.size(); ++g) {
      for (const std::string& path : paths[g]) {
        if (!begins_with_path(name, path)) continue;
        ++found;
        groups_[g].push_back(name);
      }
    }
    PEAL_CHECK(found == 1, "[launch] learner: parameter ", name, " is in ", found,
               " layer groups; it has to be in one");
  }
  norms_ = parameters_of_norms(model);
  if (!options_.optimizer) options_.optimizer = fastai_adam();
}

// Norms and biases are groups without weight decay.
void Learner::create_optimizer() {
  if (optimizer) return;
  std::vector<nn::Parameters> all;
  decays_.clear();
  layer_group_of_.clear();
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    for (const bool decay : {false, true}) {
      NamedTensors part;
      for (const std::string& name : groups_[g]) {
        const bool bare = norms_.contains(name) || is_bias(name);
        if (bare != decay) part.emplace_back(name, model.get_parameter(name));
      }
      if (part.empty()) continue;
      all.emplace_back(part);
      decays_.push_back(decay);
      layer_group_of_.push_back(g);
    }
  }
  optimizer = options_.optimizer(all);
  PEAL_CHECK(optimizer && optimizer->group_count() == all.size(),
             "[launch] learner: the optimizer must have a group for each of the ", all.size(),
             " that it is made of");
  if (optimizer->has_setting("weight_decay")) set_decay(0, false);
  if (options_.wd) set_decay(*options_.wd, true);
}

// Of the groups that decay, or of the others.
void Learner::set_decay(double wd, bool of_decaying) {
  PEAL_CHECK(optimizer->has_setting("weight_decay"), "[launch] learner: wd ", wd,
             ": the optimizer has no weight_decay; leave wd out, or "
             "take one that has");
  for (std::size_t g = 0; g < decays_.size(); ++g) {
    if (decays_[g] == of_decaying) optimizer->set_setting("weight_decay", wd, g);
  }
}

std::vector<double> Learner::by_optimizer_group(const Rates& rates) const {
  const std::vector<double> by_layers = rates.of(groups_.size());
  std::vector<double> all;
  for (const std::size_t g : layer_group_of_) all.push_back(by_layers[g]);
  return all;
}

void Learner::freeze_to(int n) {
  const auto count = static_cast<int>(groups_.size());
  PEAL_CHECK(n >= -count && n <= count, "[launch] learner: freeze_to(", n, ") of ", count,
             " layer groups");
  const int first = n < 0 ? std::max(0, count + n) : n;
  for (int g = 0; g < count; ++g) {
    for (const std::string& name : groups_[static_cast<std::size_t>(g)]) {
      model.requires_grad_(name, g >= first || norms_.contains(name));
    }
  }
}

void Learner::fit(int number, std::optional<Rates> lr, const FitOptions& fit) {
  PEAL_CHECK(number >= 1, "[launch] learner: expected 1 epoch or more, got ", number);
  PEAL_CHECK(training_loader != nullptr, "[launch] learner: there is no loader to train with");
  begin_fit(fit);
  const std::vector<double> rates = by_optimizer_group(lr.value_or(Rates(options_.lr)));
  for (std::size_t g = 0; g < rates.size(); ++g) optimizer->set_lr(rates[g], g);
  struct Restore {
    Learner& learner;
    std::vector<std::shared_ptr<Callback>> before = learner.callbacks;
    ~Restore() {
      learner.callbacks = before;
      learner.abandon();  // of a fit that an exception ended
    }
  } const restore{*this};
  callbacks.insert(callbacks.end(), fit.cbs.begin(), fit.cbs.end());
  run(number);
  release();
}

// Before what the optimizer's groups are asked for.
void Learner::begin_fit(const FitOptions& fit) {
  if (fit.reset_opt) optimizer.reset();
  create_optimizer();
  if (fit.wd) set_decay(*fit.wd, true);
}

void Learner::fit_with(int number, std::map<std::string, std::vector<Phase>> settings,
                       const FitOptions& fit) {
  FitOptions with = fit;
  with.reset_opt = false;  // it was
  with.cbs.push_back(std::make_shared<ParamScheduler>(std::move(settings), *recorder_));
  this->fit(number, {}, with);
}

std::map<std::string, std::vector<Phase>> Learner::cosines(const Rates& rates, double pct,
                                                           double div, double div_final) const {
  std::map<std::string, std::vector<Phase>> all;
  for (const double lr : by_optimizer_group(rates)) {
    all["lr"].push_back(combined_cos(pct, lr / div, lr, lr / div_final));
  }
  return all;
}

void Learner::fit_one_cycle(int number, std::optional<Rates> lr_max, OneCycle cycle,
                            const FitOptions& fit) {
  begin_fit(fit);
  auto settings =
      cosines(lr_max.value_or(Rates(options_.lr)), cycle.pct_start, cycle.div, cycle.div_final);
  const auto& moms = options_.moms;
  settings["mom"] = {combined_cos(cycle.pct_start, moms[0], moms[1], moms[2])};
  fit_with(number, std::move(settings), fit);
}

void Learner::fit_flat_cos(int number, std::optional<Rates> lr, FlatCos flat,
                           const FitOptions& fit) {
  begin_fit(fit);
  fit_with(number, cosines(lr.value_or(Rates(options_.lr)), flat.pct_start, 1, flat.div_final),
           fit);
}

void Learner::fit_sgdr(int cycles, int cycle_len, std::optional<Rates> lr_max, int cycle_mult,
                       const FitOptions& fit) {
  PEAL_CHECK(cycles >= 1 && cycle_len >= 1 && cycle_mult >= 1, "[launch] learner: fit_sgdr(",
             cycles, ", ", cycle_len, ") by ", cycle_mult, ": expected 1 or more of each");
  begin_fit(fit);
  int number = 0;
  std::vector<double> shares;
  for (int i = 0, length = cycle_len; i < cycles; ++i, length *= cycle_mult) {
    shares.push_back(length);
    number += length;
  }
  for (double& share : shares) share /= number;
  std::vector<Phase> lrs;
  for (const double lr : by_optimizer_group(lr_max.value_or(Rates(options_.lr)))) {
    lrs.push_back(combine_scheds(shares, std::vector<Phase>(shares.size(), sched_cos(lr, 0))));
  }
  fit_with(number, {{"lr", std::move(lrs)}}, fit);
}

void Learner::fine_tune(int number, double base_lr, int freeze_epochs, double lr_mult,
                        double pct_start, double div, const FitOptions& fit) {
  freeze();
  fit_one_cycle(freeze_epochs, slice(base_lr), OneCycle{.pct_start = 0.99}, fit);
  unfreeze();
  base_lr /= 2;
  FitOptions then = fit;
  then.reset_opt = false;
  fit_one_cycle(number, slice(base_lr / lr_mult, base_lr),
                OneCycle{.div = div, .pct_start = pct_start}, then);
}

std::vector<Value> Learner::validate(data::DataLoader* loader) {
  if (loader == nullptr) loader = validation_loader;
  PEAL_CHECK(loader != nullptr, "[launch] learner: there is no loader to validate with");
  epochs = 0;
  trial = true;
  const std::shared_ptr<void> over(nullptr, [this](void*) { trial = false; });
  run_validation(*loader);
  PEAL_CHECK(!recorder_->validation.empty(),
             "[launch] learner: no rank has a sample to validate with");
  return recorder_->validation;
}

Learner& Learner::to_bf16() {
  AcceleratorOptions changed = accelerator_options();
  changed.mixed_precision = "bf16";
  accelerate(std::move(changed));
  return *this;
}

Learner& Learner::to_fp16() {
  AcceleratorOptions changed = accelerator_options();
  changed.mixed_precision = "fp16";
  accelerate(std::move(changed));
  return *this;
}

}  // namespace peal::launch
