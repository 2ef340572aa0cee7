// SPDX-License-Identifier: Apache-2.0
// A Trainer's evaluations and predictions.
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/ops.h>
#include <peal/launch/training/across_processes.h>
#include <peal/launch/training/places_of_rows.h>
#include <peal/launch/training/trainer/trainer_steps.h>
#include <peal/launch/training/trainer/updates.h>

#include <chrono>
#include <cmath>
#include <utility>

namespace peal::launch {

// What is found in one pass over a data set.
struct Trainer::Judged : Callback {
  Judged(Trainer& of, bool keeps_rows) : trainer(of), keeps(keeps_rows) {}
  int order() const override { return 40; }
  void after_batch(Loop& loop) override {
    if (const double here = trainer.steps_->items; loop.loss.defined() && here > 0) {
      loss_sum += loop.loss.detach().item<double>() * here;
      items += here;
    }
    // As of a model that is prepared, so that a judgement is the same before a training and in it.
    if (is_low_precision(loop.output.dtype())) loop.output = cast(loop.output, DType::f32);
    if (loop.batch.y.defined()) {
      for (const NamedMetric& each : trainer.options_.compute_metrics)
        each.metric->update(loop.output, loop.batch.y);
    }
    trainer.steps_->call(&TrainerCallback::on_prediction_step);
    if (!keeps) return;
    outputs.push_back(loop.output.detach().to(Device{}));
    if (loop.batch.y.defined()) labels.push_back(loop.batch.y.to(Device{}));
    const auto mine = places_of_rows(*loader, loop.batch, std::ssize(places));
    places.insert(places.end(), mine.begin(), mine.end());
  }

  Trainer& trainer;
  bool keeps;
  data::DataLoader* loader = nullptr;
  double loss_sum = 0, items = 0;
  std::vector<Tensor> outputs, labels;
  std::vector<std::int64_t> places;
  PredictionOutput all = {};
};

namespace {

// What the loop is doing, put back after an evaluation within it.
struct WhereItIs {
  explicit WhereItIs(Loop& l)
      : loop(l),
        training(l.training),
        trial(l.trial),
        epochs(l.epochs),
        iter(l.iter),
        iters(l.iters),
        batch(l.batch),
        output(l.output),
        loss(l.loss),
        items_in_batch(l.items_in_batch),
        callbacks(l.callbacks) {}
  WhereItIs(const WhereItIs&) = delete;
  WhereItIs& operator=(const WhereItIs&) = delete;
  ~WhereItIs() {
    loop.training = training;
    loop.trial = trial;
    loop.epochs = epochs;
    loop.iter = iter;
    loop.iters = iters;
    loop.batch = batch;
    loop.output = output;
    loop.loss = loss;
    loop.items_in_batch = items_in_batch;
    loop.callbacks = callbacks;
    if (training) loop.model.train();
  }

  Loop& loop;
  bool training, trial;
  int epochs;
  std::int64_t iter, iters;
  data::Batch batch;
  Tensor output, loss;
  std::optional<double> items_in_batch;
  std::vector<std::shared_ptr<Callback>> callbacks;
};

}  // namespace

std::vector<Value> Trainer::judge(data::DataLoader& loader, const std::string& prefix,
                                  Judged& judged) {
  const auto begun = std::chrono::steady_clock::now();
  {
    const WhereItIs before(*this);
    trial = true;
    epochs = 0;
    for (const NamedMetric& each : options_.compute_metrics) each.metric->reset();
    judged.loader = &loader;
    callbacks.emplace_back(std::shared_ptr<void>(), &judged);
    steps_->judging = true;
    const std::shared_ptr<void> over(nullptr, [this](void*) { steps_->judging = false; });
    run_validation(loader);
  }
  const std::vector<double> mine{judged.loss_sum, judged.items};
  const Tensor sums = Tensor::from(mine, {2}, Device{});
  job.group().all_reduce(sums, comm::ReduceOp::sum, {"trainer's evaluation"}).wait();
  const double all_items = sums.data<double>()[1];
  std::vector<Value> found;
  if (all_items > 0) {
    found.push_back({prefix + "_loss", sums.data<double>()[0] / all_items});
    for (const NamedMetric& each : options_.compute_metrics)
      found.push_back({prefix + "_" + each.name, each.metric->value(job.group())});
  }
  if (judged.keeps) {
    judged.all.predictions = gather_in_order(job.group(), judged.outputs, judged.places);
    judged.all.label_ids = gather_in_order(job.group(), judged.labels, judged.places);
  }
  if (options_.compute_metrics_of_all && judged.all.label_ids.defined()) {
    for (const Value& each : options_.compute_metrics_of_all(judged.all))
      found.push_back({prefix + "_" + each.name, each.value});
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  const auto all = static_cast<double>(loader.dataset().size());
  const double steps = std::ceil(
      all / static_cast<double>(args_.per_device_eval_batch_size * std::int64_t{job.world()}));
  found.push_back({prefix + "_runtime", seconds});
  found.push_back({prefix + "_samples_per_second", all / seconds});
  found.push_back({prefix + "_steps_per_second", steps / seconds});
  return found;
}

std::vector<Value> Trainer::evaluate(const data::DatasetRef& dataset, const std::string& prefix) {
  const auto loader = get_eval_dataloader(dataset);
  tell("***** Running Evaluation *****");
  tell("  Num examples = " + with_commas(loader->dataset().size()));
  tell("  Batch size = " + with_commas(args_.per_device_eval_batch_size));
  Judged judged(*this, options_.compute_metrics_of_all != nullptr);
  std::vector<Value> found = judge(*loader, prefix, judged);
  log(found);
  if (!dataset && prefix == "eval") note_best(found);
  steps_->call(&TrainerCallback::on_evaluate);
  return found;
}

void Trainer::note_best(const std::vector<Value>& found) {
  const std::string metric = args_.best_metric();
  if (metric.empty()) return;
  std::string names;
  const Value* value = nullptr;
  for (const Value& each : found) {
    if (each.name == metric) value = &each;
    names += (names.empty() ? "" : ", ") + each.name;
  }
  PEAL_CHECK(value != nullptr, "[trainer] metric_for_best_model: there is no ", metric,
             "; an evaluation finds ", names);
  // Of the model before the first step, or after the training, there is no checkpoint.
  if (prepared_optimizer() == nullptr || state_.global_step == 0) return;
  if (std::isnan(value->value)) return;
  judged_at_ = state_.global_step;
  judged_ = value->value;
  const double gain = !state_.best_metric        ? 1
                      : args_.best_is_greatest() ? judged_ - *state_.best_metric
                                                 : *state_.best_metric - judged_;
  if (gain < 0) return;  // of equals the newest, as CheckpointFolder has it
  state_.best_metric = judged_;
  state_.best_global_step = state_.global_step;
}

PredictionOutput Trainer::predict(const data::DatasetRef& dataset, const std::string& prefix) {
  PEAL_CHECK(dataset && dataset->size() > 0, "[trainer] there is no data to predict from");
  tell("***** Running Prediction *****");
  tell("  Num examples = " + with_commas(dataset->size()));
  tell("  Batch size = " + with_commas(args_.per_device_eval_batch_size));
  const auto loader = get_eval_dataloader(dataset);
  Judged judged(*this, true);
  std::vector<Value> found = judge(*loader, prefix, judged);
  judged.all.metrics = std::move(found);
  steps_->call(&TrainerCallback::on_predict);
  return judged.all;
}

}  // namespace peal::launch
