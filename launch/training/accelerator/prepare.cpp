// SPDX-License-Identifier: Apache-2.0
// What prepare() does, for each strategy.
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/failure_words.h>
#include <peal/comm/group/agree.h>
#include <peal/launch/training/accelerator/accelerator.h>
#include <peal/launch/training/share.h>
#include <peal/nn/empty_weights.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <unordered_set>
#include <utility>

namespace peal::launch {
namespace {

using Bodies = std::unordered_set<const TensorBody*>;

Bodies parameters_of(const nn::Module& model) {
  Bodies all;
  for (const Tensor& parameter : model.parameters()) all.insert(&parameter.body());
  return all;
}

bool trains(const nn::Optimizer& optimizer, const Bodies& parameters) {
  const auto& all = optimizer.parameters();
  return std::any_of(all.begin(), all.end(), [&](const Tensor& parameter) {
    return parameters.contains(&parameter.body());
  });
}

std::string outline_of(const Preparing& given) {
  std::string text;
  for (const nn::Module& model : given.models) text += concat("model ", model.class_name(), "\n");
  for (const nn::Optimizer* each : given.optimizers) {
    text += concat("optimizer of ", each->parameters().size(), " parameters\n");
  }
  for (const data::DataLoader* each : given.loaders) {
    text += concat("loader of ", each->dataset().size(), " samples, batch_size ",
                   each->options().batch_size, "\n");
  }
  for (const nn::LRScheduler* each : given.schedulers) {
    text += concat("scheduler after ", each->steps(), " steps\n");
  }
  text += concat(given.streams.size(), " streams, ", given.plateaus.size(), " plateaus\n");
  return text;
}

// Of optimizers: that each trains what is prepared, and is new.
void check_optimizers(const Preparing& given, const GradientState& state) {
  Bodies prepared;
  for (const auto& model : state.models) {
    for (const auto& [name, parameter] : model->before) prepared.insert(&parameter.body());
  }
  for (const nn::Module& model : given.models) prepared.merge(parameters_of(model));
  for (const nn::Optimizer* optimizer : given.optimizers) {
    for (const auto& other : state.optimizers) {
      PEAL_CHECK(&other->inner != optimizer,
                 "prepare: an optimizer is prepared already; go on with what prepare() gave for "
                 "it, or call free_memory() first");
    }
    for (std::size_t p = 0; p < optimizer->parameters().size(); ++p) {
      PEAL_CHECK(prepared.contains(&optimizer->parameters()[p].body()),
                 "prepare: the optimizer's parameter ", optimizer->parameter_names()[p],
                 " of shape ", optimizer->parameters()[p].shape(),
                 " is none of a prepared model's, so its gradients would not be averaged; prepare "
                 "the model that has it, in the same call");
    }
  }
}

void check_models(const Preparing& given, const GradientState& state, Strategy strategy) {
  for (const nn::Module& model : given.models) {
    const Bodies own = parameters_of(model);
    for (const auto& other : state.models) {
      PEAL_CHECK(!any_is_of(*other, model.parameters()), "prepare: the model ", model.class_name(),
                 " has parameters of one that is prepared already");
    }
    if (strategy != Strategy::zero2) continue;
    const auto trainers =
        std::count_if(given.optimizers.begin(), given.optimizers.end(),
                      [&](const nn::Optimizer* each) { return trains(*each, own); });
    PEAL_CHECK(trainers == 1,
               "prepare: with the strategy 'zero2' a model's gradients go to the "
               "ranks that step its parameters, so it is given with the one optimizer that trains "
               "it; ",
               model.class_name(), " has ", trainers, " in this call");
  }
}

void check_loaders(const Preparing& given, Place here) {
  for (const data::DataLoader* loader : given.loaders) {
    if (here.world == 1) continue;
    PEAL_CHECK(!loader->plan(), "prepare: a loader by a plan does not say which of the ",
               here.world,
               " ranks its batches are for, and each would train on all; leave the batches to the "
               "loader (.batch_size, .shuffle = true), or give it a DistributedSampler of "
               "job.place()");
    const std::string wrong = wrong_place(*loader, here);
    PEAL_CHECK(wrong.empty(), "prepare: of a loader, ", wrong);
  }
}

}  // namespace

// All ranks have let go of the same. Optimizers and schedulers may be gone, and are not looked at.
void Accelerator::forget_unheld() {
  if (state_->uneven != nullptr) return;          // it has parts of them
  std::vector<std::weak_ptr<ModelBody>> trained;  // by those that nobody can step any more
  std::erase_if(state_->optimizers, [&](const auto& each) {
    if (each.use_count() > 1) return false;
    trained.insert(trained.end(), each->trains.begin(), each->trains.end());
    return true;
  });
  std::erase_if(state_->models, [&](const auto& model) {
    return model.use_count() == 1 &&
           std::any_of(trained.begin(), trained.end(),
                       [&](const auto& each) { return each.lock() == model; });
  });
  const auto alone = [](const auto& each) { return !each.is_held(); };
  std::erase_if(loaders_, alone);
  std::erase_if(streams_, alone);
  std::erase_if(schedulers_, alone);
  std::erase_if(plateaus_, alone);
}

Prepared Accelerator::prepare_all(const Preparing& given) {
  forget_unheld();
  const std::string wrong = failure_in([&] {
    check_models(given, *state_, strategy_);
    check_optimizers(given, *state_);
    check_loaders(given, job_.place());
    for (const auto& stream : given.streams) {
      const std::string why = stream->wrong(job_.place());
      PEAL_CHECK(why.empty(), why);
    }
  });
  comm::agree_unless(job_.group(), "[accelerator]", outline_of(given), wrong,
                     "give prepare() the same on every rank");
  Prepared made;
  for (const nn::Module& model : given.models) {  // optimizers see where their parameters are then
    nn::Module moved = model;
    const auto all = moved.parameters();
    if (options_.device.empty() && !all.empty()) device_ = all.front().device();
    const bool away = std::any_of(all.begin(), all.end(), [this](const Tensor& parameter) {
      return parameter.device() != device_;
    });
    if (away && !options_.device.empty()) moved.to(device_);
  }
  std::vector<std::shared_ptr<OptimizerBody>> optimizers;
  for (nn::Optimizer* each : given.optimizers) optimizers.push_back(begin_optimizer(*each));
  for (const nn::Module& each : given.models) {
    state_->models.push_back(wrap(each, optimizers));
    made.models.emplace_back(state_->models.back());
  }
  for (const auto& each : optimizers) {
    for (const auto& model : state_->models) {
      if (any_is_of(*model, each->inner.parameters())) each->trains.push_back(model);
    }
    give_pieces(*each);
    state_->optimizers.push_back(each);
    made.optimizers.emplace_back(each);
  }
  std::string seeds;
  for (const data::DataLoader* each : given.loaders) seeds += concat(*each->options().seed, " ");
  if (!seeds.empty()) seeds = job_.group().all_gather_object(seeds)[0];
  std::istringstream in(seeds);
  for (const data::DataLoader* each : given.loaders) {
    std::uint64_t seed = 0;
    in >> seed;
    made.loaders.emplace_back(share(*each, seed), state_);
  }
  const bool once = options_.scheduler_counts_updates || options_.split_batches;
  for (nn::LRScheduler* each : given.schedulers) {
    made.schedulers.emplace_back(*each, state_, once ? 1 : job_.world());
  }
  for (const auto& each : given.streams) {
    if (!options_.device.empty()) each->device = device_;
    made.streams.emplace_back(each, state_);
  }
  for (nn::ReduceLROnPlateau* each : given.plateaus) made.plateaus.emplace_back(*each, state_);
  streams_.insert(streams_.end(), made.streams.begin(), made.streams.end());
  plateaus_.insert(plateaus_.end(), made.plateaus.begin(), made.plateaus.end());
  loaders_.insert(loaders_.end(), made.loaders.begin(), made.loaders.end());
  schedulers_.insert(schedulers_.end(), made.schedulers.begin(), made.schedulers.end());
  if (!given.models.empty()) draw_apart();
  return made;
}

void Accelerator::draw_apart() {
  const std::uint64_t now = context().generator.seed;
  if (job_.world() == 1 || own_seed_ == now) return;
  own_seed_ = now * 1000003 + static_cast<std::uint64_t>(job_.rank()) + 1;
  manual_seed(*own_seed_);
}

std::shared_ptr<OptimizerBody> Accelerator::begin_optimizer(nn::Optimizer& optimizer) {
  auto body = std::make_shared<OptimizerBody>(
      OptimizerBody{.inner = optimizer, .shards = {}, .pieces_of = {}, .state = state_});
  if (strategy_ == Strategy::zero1 || strategy_ == Strategy::zero2) {
    body->shards.emplace(job_.group());
    body->shards->place(optimizer);
  }
  return body;
}

std::shared_ptr<ModelBody> Accelerator::wrap(
    const nn::Module& model, const std::vector<std::shared_ptr<OptimizerBody>>& optimizers) {
  const auto wrapped = [&]() -> ModelBody::Wrapper {
    if (strategy_ == Strategy::fsdp) {
      return nn::FullyShardedDataParallel(model, job_.group(), options_.fsdp);
    }
    if (strategy_ == Strategy::zero2) {
      const Bodies own = parameters_of(model);
      const auto owner = std::find_if(optimizers.begin(), optimizers.end(),
                                      [&](const auto& each) { return trains(each->inner, own); });
      return nn::ShardedDDP(model, *(*owner)->shards, options_.ddp);
    }
    const bool is_alone = job_.world() == 1 && strategy_ <= Strategy::ddp;
    if (is_alone && !options_.ddp.mixed_precision.any()) {
      nn::materialize_module(model);  // as a wrapper does
      return model;
    }
    return nn::DistributedDataParallel(model, job_.group(), options_.ddp);
  };
  NamedTensors before = model.named_parameters();
  return std::make_shared<ModelBody>(ModelBody{
      .plain = model, .before = std::move(before), .wrapper = wrapped(), .state = state_});
}

// An optimizer of a sharded model's parameters trains this rank's pieces of them.
void Accelerator::give_pieces(OptimizerBody& optimizer) const {
  for (const auto& model : state_->models) {
    nn::FullyShardedDataParallel* const sharded = PreparedModel(model).fsdp();
    if (sharded == nullptr || !any_is_of(*model, optimizer.inner.parameters())) continue;
    std::map<std::string, Tensor> pieces;
    for (const auto& [name, piece] : sharded->local_parameters()) pieces[name] = piece;
    std::map<const TensorBody*, Tensor> in_place;
    for (const auto& [name, parameter] : model->before) in_place[&parameter.body()] = pieces[name];
    std::vector<Tensor> all = optimizer.inner.parameters();
    for (Tensor& each : all) {
      const auto found = in_place.find(&each.body());
      if (found != in_place.end()) each = found->second;
    }
    optimizer.inner.exchange_parameters(all);
    optimizer.pieces_of = model;
  }
}

std::shared_ptr<LoaderBody> Accelerator::share(const data::DataLoader& loader,
                                               std::uint64_t seed) const {
  data::LoaderOptions options = loader.options();
  options.seed = seed;
  if (!options_.device.empty()) options.device = device_;
  auto body = std::make_shared<LoaderBody>();
  body->nominal = options.batch_size;
  if (loader.plan()) {
    body->loader = std::make_unique<data::DataLoader>(loader.dataset_ref(), loader.plan(), options);
  } else if (loader.sampler()) {
    body->loader =
        std::make_unique<data::DataLoader>(loader.dataset_ref(), loader.sampler(), options);
  } else {
    if (job_.world() > 1 && !options.shard) {
      const auto way = options_.split_batches ? data::Way::split : data::Way::batches;
      const bool exact = !options_.even_batches && !options.drop_last;
      options = shared_out(options, job_.place(), way, exact);
    }
    if (options.way == data::Way::split) body->nominal = options.batch_size / job_.world();
    body->loader = std::make_unique<data::DataLoader>(loader.dataset_ref(), options);
    body->in_epoch = body->loader->size();
  }
  return body;
}

PreparedLoader Accelerator::as_prepared(data::DataLoader& share) const {
  auto body = std::make_shared<LoaderBody>();
  const data::LoaderOptions options = share.options();
  body->nominal = options.batch_size;
  if (options.way == data::Way::split) body->nominal = options.batch_size / job_.world();
  body->loader = std::shared_ptr<data::DataLoader>(&share, [](data::DataLoader*) {});
  return {std::move(body), state_};
}

void Accelerator::free_memory() {
  GradientState& state = *state_;
  for (const auto& each : state.optimizers) state.scale_is_due |= each->unscaled;
  state.update_scaler();
  state.groups = Accumulation(options_.gradient_accumulation_steps, options_.last_group);
  state.turn = {};
  state.trained.reset();
  state.loaders.clear();
  state.models.clear();
  state.optimizers.clear();
  loaders_.clear();
  schedulers_.clear();
  streams_.clear();
  plateaus_.clear();
}

}  // namespace peal::launch
