// SPDX-License-Identifier: Apache-2.0
// What a Trainer makes of its arguments: loaders, the optimizer, the schedule, the wrapped model.
#include <peal/autograd/core/error.h>
#include <peal/data/batches.h>
#include <peal/launch/training/norms.h>
#include <peal/launch/training/trainer/trainer_steps.h>
#include <peal/launch/training/trainer/updates.h>
#include <peal/nn/optim/adafactor.h>
#include <peal/nn/optim/adam.h>
#include <peal/nn/optim/rules.h>
#include <peal/nn/optim/schedule_free.h>
#include <peal/nn/optim/sgd.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace peal::launch {
namespace {

// Biases, and all of norms, do not decay.
std::set<std::string> names_without_decay(const nn::Module& model) {
  std::set<std::string> names = parameters_of_norms(model);
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (is_bias(name)) names.insert(name);
  }
  return names;
}

OptimizerFactory optimizer_of_arguments(const TrainingArguments& args) {
  const double lr = args.learning_rate;
  if (args.optim == "sgd") return optimizer_of<nn::SGD>(nn::SGDOptions{.lr = lr});
  if (args.optim == "adafactor") return optimizer_of<nn::Adafactor>(nn::AdafactorOptions{.lr = lr});
  if (args.optim == "adagrad") return optimizer_of<nn::Adagrad>(nn::AdagradOptions{.lr = lr});
  if (args.optim == "rmsprop") return optimizer_of<nn::RMSprop>(nn::RMSpropOptions{.lr = lr});
  if (args.optim == "lion_32bit") {
    return optimizer_of<nn::Lion>(
        nn::LionOptions{.lr = lr, .beta1 = args.adam_beta1, .beta2 = args.adam_beta2});
  }
  if (args.optim == "schedule_free_adamw") {
    return optimizer_of<nn::AdamWScheduleFree>(
        nn::AdamWScheduleFreeOptions{.lr = lr,
                                     .beta1 = args.adam_beta1,
                                     .beta2 = args.adam_beta2,
                                     .eps = args.adam_epsilon,
                                     .warmup_steps = args.warmup_steps});
  }
  return optimizer_of<nn::AdamW>(nn::AdamWOptions{
      .lr = lr, .beta1 = args.adam_beta1, .beta2 = args.adam_beta2, .eps = args.adam_epsilon});
}

// All parameters, by the program's groups; Error where one is in none, or in two.
std::vector<std::pair<NamedTensors, double>> named_groups(const nn::Module& model,
                                                          const std::vector<LayerGroup>& groups) {
  NamedTensors left = model.named_parameters();
  if (groups.empty()) return {{left, 1.0}};
  std::vector<std::pair<NamedTensors, double>> all;
  for (const LayerGroup& group : groups) {
    auto& [named, scale] = all.emplace_back(NamedTensors{}, group.lr_scale);
    for (const Tensor& parameter : group.parameters) {
      const auto found = std::find_if(left.begin(), left.end(), [&](const auto& each) {
        return each.second.same_as(parameter);
      });
      PEAL_CHECK(found != left.end(), "[trainer] layer_groups: group ", all.size() - 1,
                 " has a tensor that is no parameter of the model, or is in another group, too");
      named.push_back(*found);
      left.erase(found);
    }
  }
  PEAL_CHECK(left.empty(), "[trainer] layer_groups: the parameter ", left[0].first,
             " is in none; each has to be in one");
  return all;
}

}  // namespace

std::unique_ptr<data::DataLoader> Trainer::get_train_dataloader() const {
  const data::DatasetRef& set = options_.train_dataset;
  if (options_.train_dataloader) return options_.train_dataloader();
  PEAL_CHECK(set, "[trainer] there is no data to train with (.train_dataset)");
  const std::int64_t batch = args_.per_device_train_batch_size;
  const auto seed = static_cast<std::uint64_t>(args_.data_seed.value_or(args_.seed));
  data::LoaderOptions options{.seed = seed,
                              .workers = static_cast<int>(args_.dataloader_num_workers),
                              .prefetch = static_cast<int>(args_.dataloader_prefetch_factor),
                              .device = plain_.parameters().at(0).device()};
  if (!args_.group_by_length) {
    options.batch_size = batch;
    options.shuffle = true;
    options.shard = job.place();
    options.drop_last = args_.dataloader_drop_last;
    return std::make_unique<data::DataLoader>(set, options);
  }
  const auto tail = args_.dataloader_drop_last ? data::Tail::drop : data::Tail::fill;
  return std::make_unique<data::DataLoader>(
      set,
      [=, lengths = options_.lengths, place = job.place()](std::int64_t number) {
        const auto order = data::shard(set->size(), 1, 0, {.seed = seed, .epoch = number});
        return data::batch_shard(data::by_length(order, lengths, batch), batch, place, tail);
      },
      options);
}

std::unique_ptr<data::DataLoader> Trainer::get_eval_dataloader(
    const data::DatasetRef& dataset) const {
  const data::DatasetRef& set = dataset ? dataset : options_.eval_dataset;
  PEAL_CHECK(set && set->size() > 0,
             "[trainer] there is no data to evaluate with (.eval_dataset), or it is empty");
  if (options_.eval_dataloader) return options_.eval_dataloader(set);
  return std::make_unique<data::DataLoader>(
      set, data::LoaderOptions{.batch_size = args_.per_device_eval_batch_size,
                               .shard = job.place(),
                               .workers = static_cast<int>(args_.dataloader_num_workers),
                               .prefetch = static_cast<int>(args_.dataloader_prefetch_factor),
                               .exact = true,
                               .device = plain_.parameters().at(0).device()});
}

void Trainer::create_optimizer() {
  const std::set<std::string> bare = names_without_decay(plain_);
  std::vector<nn::Parameters> groups;
  std::vector<double> decays;
  base_lrs_.clear();
  for (const auto& [tensors, scale] : named_groups(plain_, options_.layer_groups)) {
    NamedTensors decaying, others;
    for (const auto& [name, parameter] : tensors)
      (bare.contains(name) ? others : decaying).emplace_back(name, parameter);
    for (const auto& [part, decay] : {std::pair{&decaying, args_.weight_decay}, {&others, 0.0}}) {
      if (part->empty()) continue;
      groups.emplace_back(*part);
      decays.push_back(decay);
      base_lrs_.push_back(args_.learning_rate * scale);
    }
  }
  const bool own = options_.optimizer != nullptr;
  optimizer = own ? options_.optimizer(groups) : optimizer_of_arguments(args_)(groups);
  PEAL_CHECK(optimizer && optimizer->group_count() == groups.size(),
             "[trainer] the optimizer must have a group for each of the ", groups.size(),
             " that it is made of");
  for (std::size_t g = 0; g < groups.size(); ++g) {
    // A default of 0 does not undo what the program's own has.
    if ((!own || args_.weight_decay > 0) && optimizer->has_setting("weight_decay"))
      optimizer->set_setting("weight_decay", decays[g], g);
    optimizer->set_lr(base_lrs_[g], g);
  }
}

void Trainer::create_scheduler() {
  const std::int64_t updates = updates_;
  const std::int64_t warm_up =
      args_.warmup_steps > 0
          ? args_.warmup_steps
          : static_cast<std::int64_t>(std::ceil(args_.warmup_ratio * static_cast<double>(updates)));
  std::function<double(std::int64_t)> factor = schedule_of(
      args_.lr_scheduler_type, warm_up, updates, args_.learning_rate, args_.lr_scheduler_kwargs);
  if (options_.lr_scheduler) {
    factor = [own = options_.lr_scheduler, updates](std::int64_t done) {
      return own(done, updates);
    };
  }
  schedule_ahead_ = 0;
  scheduler_ = std::make_unique<nn::LRScheduler>(
      *optimizer, nn::lambda_lr([this, factor = std::move(factor)](std::int64_t done) {
        return factor(done + schedule_ahead_);
      }));
}

}  // namespace peal::launch
