// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/ops/ops.h>
#include <peal/launch/training/trainer/trainer_steps.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace peal::launch {
namespace {

// Whether a number of updates is over once more: `every` of them, or a part of all.
bool is_due(std::int64_t step, double every, std::int64_t all) {
  const double steps = every < 1 ? std::ceil(every * static_cast<double>(all)) : every;
  return step % std::max<std::int64_t>(1, static_cast<std::int64_t>(steps)) == 0;
}

}  // namespace

void StepLosses::add(const Tensor& loss, double items) {
  const NoGrad guard;
  // A mean over nothing is no number.
  const Tensor value = items == 0 ? Tensor::zeros(Shape{}, DType::f64, loss.device())
                                  : mul(cast(loss.detach().reshape({}), DType::f64), items);
  group_ = group_.defined() ? group_ + value : value;
  items_ += items;
}

void StepLosses::end_step() {
  if (!group_.defined()) return;
  sums_.push_back(std::exchange(group_, Tensor()));
  all_items_.push_back(std::exchange(items_, 0));
  constexpr std::int64_t most = 1000;  // where logs are rare, neither memory nor checkpoints grow
  if (std::ssize(sums_) < most) return;
  folded_ += sum_over_ranks();
  folded_steps_ += std::ssize(sums_);
  sums_.clear();
  all_items_.clear();
}

std::vector<double> StepLosses::numbers() const {
  std::vector<double> all;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    all.push_back(sums_[i].item<double>());
    all.push_back(all_items_[i]);
  }
  return all;
}

double StepLosses::sum_over_ranks() const {
  if (sums_.empty()) return 0;
  const std::vector<double> mine = numbers();
  const Tensor all = Tensor::from(mine, {std::ssize(mine)}, Device{});
  if (job_->world() > 1)
    job_->group().all_reduce(all, comm::ReduceOp::sum, {"trainer's losses"}).wait();
  double sum = 0;
  for (std::size_t i = 0; i < mine.size(); i += 2) {
    const double items = all.data<double>()[i + 1];
    sum += items == 0 ? 0 : all.data<double>()[i] / items;
  }
  return sum;
}

double StepLosses::take() {
  const double sum = std::exchange(folded_, 0) + sum_over_ranks();
  const std::int64_t count = steps();
  before_ += sum;
  steps_before_ += count;
  folded_steps_ = 0;
  sums_.clear();
  all_items_.clear();
  return sum / static_cast<double>(std::max<std::int64_t>(count, 1));
}

double StepLosses::of_all() const {
  const double sum = before_ + folded_ + sum_over_ranks();
  return sum / static_cast<double>(std::max<std::int64_t>(steps() + steps_before_, 1));
}

void StepLosses::consolidate_state_dict(int) {
  std::vector<double> mine = numbers();
  mine.insert(mine.begin(), static_cast<double>(std::ssize(sums_)));
  const auto size = std::ssize(mine);
  gathered_ = Tensor::empty({job_->world(), size}, DType::f64, Device{});
  job_->group().all_gather(gathered_, Tensor::from(mine, {size}, Device{})).wait();
}

NamedTensors StepLosses::state_dict() const {
  return {{"since", gathered_},
          {"folded", Tensor::scalar(folded_, Device{})},
          {"folded_steps", Tensor::scalar(folded_steps_, Device{})},
          {"before", Tensor::scalar(before_, Device{})},
          {"steps_before", Tensor::scalar(steps_before_, Device{})}};
}

// In another world rank 0 takes all that the others had.
void StepLosses::load_state_dict(const NamedTensors& state) {
  StateReader reader("losses of steps", state);
  const auto found = std::find_if(state.begin(), state.end(),
                                  [](const auto& entry) { return entry.first == "since"; });
  const bool fits = found != state.end() && found->second.dim() == 2;
  const std::int64_t ranks = fits ? found->second.size(0) : 1,
                     size = fits ? found->second.size(1) : 1;
  const Tensor since = reader.tensor("since", {ranks, size}, DType::f64);
  const auto folded = reader.number<double>("folded"), before = reader.number<double>("before");
  const auto folded_steps = reader.number<std::int64_t>("folded_steps");
  const auto steps_before = reader.number<std::int64_t>("steps_before");
  reader.finish();
  const auto all = since.to_vector<double>();
  *this = StepLosses(*job_);
  for (std::int64_t at = 1; at + 1 < size; at += 2) {
    double sum = 0, items = 0;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      if (ranks == job_->world() ? rank != job_->rank() : job_->rank() != 0) continue;
      sum += all[static_cast<std::size_t>(rank * size + at)];
      items += all[static_cast<std::size_t>(rank * size + at + 1)];
    }
    sums_.push_back(Tensor::scalar(sum, Device{}));
    all_items_.push_back(items);
  }
  folded_ = folded;
  folded_steps_ = folded_steps;
  before_ = before;
  steps_before_ = steps_before;
}

void TrainerSteps::call(Moment moment) {
  for (const auto& each : trainer_.options_.callbacks) (each.get()->*moment)(trainer_, control_);
}

void TrainerSteps::before_fit(Loop& loop) {
  loop.sync_gradients = true;
  control_ = {};
  terminated = false;
  batches_ = learnt_ = 0;
  call(&TrainerCallback::on_train_begin);
}

void TrainerSteps::before_epoch(Loop&) {
  if (judging) return;
  control_.should_epoch_stop = epoch_ended = false;
  call(&TrainerCallback::on_epoch_begin);
}

void TrainerSteps::before_batch(Loop& loop) {
  computed = Tensor();
  if (loop.training && batches_ == 0) call(&TrainerCallback::on_step_begin);
}

// What compute_loss gave counts whether there is a y or not.
void TrainerSteps::after_pred(Loop& loop) { loop.loss = computed; }

void TrainerSteps::after_loss(Loop& loop) {
  items = trainer_.options_.num_items_in_batch(loop.batch);
}

void TrainerSteps::before_backward(Loop& loop) {
  loop.sync_gradients = batches_ + 1 >= trainer_.args_.gradient_accumulation_steps ||
                        !loop.training_loader->has_next();
  losses.add(loop.loss, items);
}

void TrainerSteps::before_step(Loop& loop) {
  const double most = trainer_.args_.max_grad_norm;
  if (most > 0) norm_ = loop.accelerator().clip_grad_norm_(loop.model.parameters(), most);
  call(&TrainerCallback::on_pre_optimizer_step);
}

void TrainerSteps::after_step(Loop& loop) {
  if (!loop.accelerator().optimizer_step_was_skipped()) trainer_.scheduler_->step();
  call(&TrainerCallback::on_optimizer_step);
}

void TrainerSteps::after_batch(Loop& loop) {
  if (!loop.training) return;
  epoch_ended = !loop.training_loader->has_next();  // asked later, it is of the next epoch
  if (std::exchange(learnt_, loop.train_iter) == loop.train_iter) return;  // it was cancelled
  ++batches_;
  if (!loop.sync_gradients) return call(&TrainerCallback::on_substep_end);
  batches_ = 0;
  losses.end_step();
  TrainerState& state = trainer_.state_;
  ++state.global_step;
  state.epoch = loop.epoch + static_cast<double>(loop.iter + 1) / static_cast<double>(loop.iters);
  if (bar) bar->update(state.global_step, fmt::format("epoch {:.2f}", state.epoch));
  call(&TrainerCallback::on_step_end);
  wish_by_step();
  agree();
  act(false);
  epoch_ended = epoch_ended || control_.should_epoch_stop;
  terminated = termination && termination->asked();
  if (terminated || control_.should_training_stop || control_.should_epoch_stop)
    throw CancelTrainException();
}

void TrainerSteps::after_epoch(Loop&) {
  if (judging) return;
  if (!terminated || epoch_ended) {
    call(&TrainerCallback::on_epoch_end);
    wish_by_epoch();
    agree();
    act(true);
  }
  if (terminated || control_.should_training_stop) throw CancelFitException();
}

bool TrainerSteps::past_delay() const {
  const TrainingArguments& args = trainer_.args_;
  const TrainerState& state = trainer_.state_;
  const bool by_steps = args.eval_strategy == "steps";
  return (by_steps ? static_cast<double>(state.global_step) : state.epoch) >= args.eval_delay;
}

void TrainerSteps::wish_by_step() {
  const TrainingArguments& args = trainer_.args_;
  const TrainerState& state = trainer_.state_;
  const auto due = [&](const std::string& strategy, double every) {
    return strategy == "steps" && is_due(state.global_step, every, state.max_steps);
  };
  if (args.logging_first_step && state.global_step == 1) control_.should_log = true;
  if (due(args.logging_strategy, args.logging_steps)) control_.should_log = true;
  if (due(args.eval_strategy, args.evaluation_steps()) && past_delay())
    control_.should_evaluate = true;
  if (due(args.save_strategy, args.save_steps)) control_.should_save = true;
  if (state.global_step < state.max_steps) return;
  control_.should_training_stop = true;
  if (args.save_strategy == "steps") control_.should_save = true;  // the last one, too
}

void TrainerSteps::wish_by_epoch() {
  const TrainingArguments& args = trainer_.args_;
  if (args.logging_strategy == "epoch") control_.should_log = true;
  if (args.eval_strategy == "epoch" && past_delay()) control_.should_evaluate = true;
  if (args.save_strategy == "epoch") control_.should_save = true;
}

// Where there are no callbacks of users, all ranks wish for the same.
void TrainerSteps::agree() {
  if (trainer_.job.world() == 1 || trainer_.options_.callbacks.empty()) return;
  bool* const wishes[] = {&control_.should_training_stop, &control_.should_epoch_stop,
                          &control_.should_log, &control_.should_evaluate, &control_.should_save};
  std::vector<std::int32_t> mine;
  for (const bool* each : wishes) mine.push_back(*each ? 1 : 0);
  const Tensor all = Tensor::from(mine, {std::ssize(mine)}, Device{});
  trainer_.job.group().all_reduce(all, comm::ReduceOp::max, {"trainer's wishes"}).wait();
  const auto found = all.to_vector<std::int32_t>();
  for (std::size_t i = 0; i < found.size(); ++i) *wishes[i] = found[i] != 0;
}

// Each may bring new wishes (on_log, on_evaluate), which all have to know of.
void TrainerSteps::act(bool epoch_is_over) {
  if (std::exchange(control_.should_log, false) && losses.steps() > 0) {
    log_losses();
    agree();
  }
  if (std::exchange(control_.should_evaluate, false)) {
    trainer_.evaluate();
    const TrainerState& state = trainer_.state_;
    if (trainer_.args_.save_strategy == "best" && state.best_global_step == state.global_step)
      control_.should_save = true;
    agree();
  }
  // After an epoch's last step it waits for what comes at the epoch's end: a run that goes on from
  // there begins with the next epoch.
  if ((epoch_ended || control_.should_epoch_stop) && !epoch_is_over) return;
  if (std::exchange(control_.should_save, false)) {
    trainer_.save_checkpoint();
    call(&TrainerCallback::on_save);
    agree();
  }
}

void TrainerSteps::log_losses() {
  std::vector<Value> values{{"loss", losses.take()}};
  if (norm_.defined()) values.push_back({"grad_norm", norm_.item<double>()});
  values.push_back({"learning_rate", trainer_.scheduler_->get_last_lr()[0]});
  trainer_.log(std::move(values));
}

}  // namespace peal::launch
