// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/ops.h>
#include <peal/launch/training/across_processes.h>
#include <peal/launch/training/learner/learner.h>
#include <peal/launch/training/learner/predictions.h>
#include <peal/launch/training/places_of_rows.h>

#include <memory>
#include <string_view>

namespace peal::launch {
namespace {

// On the CPU, and in f32 where it was computed in low precision.
Tensor kept(const Tensor& x) {
  return (is_low_precision(x.dtype()) ? cast(x, DType::f32) : x).detach().to(Device{});
}

}  // namespace

void GatherPreds::before_validate(Loop&) {
  predictions_.clear();
  targets_.clear();
  inputs_.clear();
  losses_.clear();
  places_.clear();
}

void GatherPreds::before_batch(Loop& loop) {
  if (!options_.with_targets) loop.batch.y = Tensor();
}

void GatherPreds::after_loss(Loop& loop) {
  PEAL_CHECK(loop.batch.y.defined() || !options_.with_loss,
             "[launch] learner: get_preds: batches have no y, so samples have no losses");
  const auto places = places_of_rows(*loop.loader, loop.batch, std::ssize(places_));
  places_.insert(places_.end(), places.begin(), places.end());
  predictions_.push_back(kept(reading_.activation(loop.output)));
  if (loop.batch.y.defined()) targets_.push_back(kept(loop.batch.y));
  if (options_.with_input) inputs_.push_back(kept(loop.batch.x));
  if (options_.with_loss) {
    losses_.push_back(kept(loss_of_each(loop.loss_function, loop.output, loop.batch.y)));
  }
}

void GatherPreds::after_validate(Loop& loop) {
  const comm::ProcessGroup& group = loop.job.group();
  const auto all = [&](const Tensors& parts) { return gather_in_order(group, parts, places_); };
  found_ = {all(predictions_), all(targets_), {}, all(inputs_), all(losses_)};
  PEAL_CHECK(found_.predictions.defined(),
             "[launch] learner: get_preds: no rank has a sample to say something about");
  if (options_.with_decoded) found_.decoded = reading_.decodes(found_.predictions);
}

Predictions Learner::get_preds(data::DataLoader* loader, const PredictionOptions& options) {
  if (loader == nullptr) loader = validation_loader;
  PEAL_CHECK(loader != nullptr, "[launch] learner: there is no loader to predict by");
  PEAL_CHECK(!loader->plan() || job.world() == 1, "[launch] learner: get_preds of ", job.world(),
             " ranks: a loader by a plan does not say where its samples belong; give a loader by "
             "options");
  PEAL_CHECK(options.with_targets || !options.with_loss,
             "[launch] learner: get_preds: there are no losses without targets");
  const auto gather = std::make_shared<GatherPreds>(reading_, options);
  const auto before = callbacks;
  const std::shared_ptr<void> over(nullptr, [&](void*) {
    callbacks = before;
    trial = false;
    recorder().judges = true;
  });
  callbacks.push_back(gather);
  epochs = 0;
  trial = true;
  recorder().judges = false;
  run_validation(*loader);
  return gather->found();
}

Predictions Learner::tta(data::DataLoader& augmented, data::DataLoader* loader,
                         const TTAOptions& options) {
  PEAL_CHECK(options.n >= 1 && options.beta >= 0 && options.beta <= 1,
             "[launch] learner: tta: expected 1 or more variants, and a beta from 0 to 1; got ",
             options.n, " and ", options.beta);
  const NoGrad guard;
  Predictions found = get_preds(loader);
  Tensor of_variants;
  for (int variant = 0; variant < options.n; ++variant) {
    augmented.set_epoch(variant);
    const Tensor one = get_preds(&augmented, {.with_targets = false}).predictions;
    PEAL_CHECK(one.shape() == found.predictions.shape(), "[launch] learner: tta: the model says ",
               found.predictions.shape(), " of the samples, and ", one.shape(),
               " of their variants; give loaders of the same ones");
    if (!of_variants.defined()) {
      of_variants = one;
    } else {
      of_variants = options.use_max ? maximum(of_variants, one) : of_variants + one;
    }
  }
  found.predictions = options.use_max
                          ? maximum(of_variants, found.predictions)
                          : lerp(of_variants / options.n, found.predictions, options.beta);
  found.decoded = reading_.decodes(found.predictions);
  return found;
}

Prediction Learner::predict(const Tensor& x) {
  return predict(data::Batch{unsqueeze(x, 0), Tensor()});
}

Prediction Learner::predict(const data::Batch& sample) {
  PEAL_CHECK(sample.x.defined() && sample.x.dim() >= 1 && sample.size() == 1,
             "[launch] learner: predict takes one sample, x [1, ...]");
  const NoGrad guard;
  const bool trained = model.training();
  const std::shared_ptr<void> over(nullptr, [&](void*) { model.train(trained); });
  model.eval();
  model.reset();
  const data::Batch here = sample.to(device_of_model());
  Tensor output;
  {
    const Autocast precision(lowered().value_or(DType::bf16), lowered().has_value());
    output = kept(reading_.activation(forward ? forward(model, here) : model(here.x)));
  }
  PEAL_CHECK(output.dim() >= 1 && output.size(0) == 1, "[launch] learner: predict: of one sample ",
             "the model gave ", output.shape(), "; expected [1, ...]");
  Prediction found{select(reading_.decodes(output), 0, 0), select(output, 0, 0), {}};
  if (options_.classes.empty() || found.decoded.numel() != 1) return found;
  if (found.decoded.dtype() != DType::i64) return found;
  const auto number = static_cast<std::size_t>(found.decoded.item<std::int64_t>());
  PEAL_CHECK(number < options_.classes.size(), "[launch] learner: predict: the model gave class ",
             number, ", and there are names of ", options_.classes.size());
  found.label = options_.classes[number];
  return found;
}

Device Learner::device_of_model() const {
  const NamedTensors parameters = model.named_parameters();
  return parameters.empty() ? Device{} : parameters.front().second.device();
}

}  // namespace peal::launch
