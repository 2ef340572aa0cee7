// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/failure_words.h>
#include <peal/autograd/ops/ops.h>
#include <peal/comm/group/agree.h>
#include <peal/launch/training/learner/loop.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace peal::launch {

template <Event before, class F>
void Loop::with_events(F&& f) {
  constexpr auto number = static_cast<std::uint8_t>(before);
  try {
    call(before);
    f();
  } catch (const CancelException<before>&) {
    // In a validation, batches have nothing in common.
    if (before != Event::before_batch || training) in_step(name_of(static_cast<Event>(number + 1)));
    call(static_cast<Event>(number + 1));
  }
  call(static_cast<Event>(number + 2));
}

void Loop::call(Event event) {
  if (!in_order_ || seen_ != callbacks) {
    auto sorted = std::make_shared<std::vector<std::shared_ptr<Callback>>>(callbacks);
    std::stable_sort(sorted->begin(), sorted->end(),
                     [](const auto& a, const auto& b) { return a->order() < b->order(); });
    seen_ = callbacks;
    in_order_ = std::move(sorted);
  }
  const auto in_order = in_order_;  // a callback may add others
  for (const auto& each : *in_order) each->on(event, *this);
}

void Loop::in_step(std::string_view where) const {
  if (job.world() == 1) return;
  comm::agree(job.group(), "[launch] learner: the training",
              concat("in ", where, ", epoch ", epoch, ", after ", train_iter, " batches"),
              "cancel on all ranks or on none, by what all have (loop.values, loop.agreed())");
}

template <class F>
void Loop::with_others(F&& f) const {
  try {
    f();
  } catch (...) {
    // The others are in a collective, and would wait.
    if (job.world() > 1 && !job.group().poisoned()) {
      job.group().poison(concat("[launch] learner: rank ", job.rank(), ": ", words_of_failure()));
    }
    throw;
  }
}

void Loop::run(int number_of_epochs, Start start) {
  share_loaders(start);
  if (!prepared_) prepare();
  epochs = number_of_epochs;
  epoch = start.epoch;
  iter = start.iter;
  train_iter = 0;
  samples = 0;
  sync_gradients = true;
  iters = training_iters_ = start.iter + training_loader->size();
  with_others([&] {
    prepared_->zero_grad();
    with_events<Event::before_fit>([&] {
      for (std::int64_t over = start.iter; epoch < epochs; ++epoch, over = 0) {
        if (epoch > start.epoch) leave_out_rest(start);
        with_events<Event::before_epoch>([&] { one_epoch(over); });
      }
    });
    in_step(name_of(Event::after_fit));
  });
}

void Loop::run_validation(data::DataLoader& with) {
  data::DataLoader& share = shares_.to_validate(job, with);
  if (const Device there = accelerator().device(); !options_.device.empty() && !prepared_) {
    model.to(there);
  }
  with_others([&] { with_events<Event::before_epoch>([&] { validate(share); }); });
  if (&share != &with) shares_.go_on(with, share);
}

// The first epoch may have been cancelled before its batches came; the next one is whole.
void Loop::leave_out_rest(Start start) const {
  data::DataLoader& training = *training_loader;
  if (start.iter == 0 || training.taken() > 0 || training.consumed() == 0) return;
  training.set_epoch(training.epoch() + 1);
}

void Loop::one_epoch(std::int64_t over) {
  train(over);
  if (validation_loader != nullptr) validate(*validation_loader);
}

void Loop::train(std::int64_t over) {
  training = true;
  model.train();
  model.reset();
  with_events<Event::before_train>([&] { all_batches(*training_loader, over); });
}

void Loop::validate(data::DataLoader& with) {
  const NoGrad guard;
  training = false;
  const auto whole = whole_model();  // ranks may have different numbers of batches
  model.eval();
  model.reset();
  with_events<Event::before_validate>([&] { all_batches(with); });
}

void Loop::all_batches(data::DataLoader& of, std::int64_t over) {
  loader = &of;
  iter = over;
  iters = over + of.size();
  for (const data::Batch& each : accelerator_->as_prepared(of)) {
    batch = options_.device.empty() ? each : each.to(accelerator_->device());
    output = loss = Tensor();
    items_in_batch.reset();
    with_events<Event::before_batch>([&] { one_batch(); });
    ++iter;
  }
}

void Loop::one_batch() {
  if (training) go_to_training(true);
  {
    const Autocast precision = accelerator_->autocast();
    output = forward ? forward(model, batch) : model(batch.x);
    call(Event::after_pred);
    if (batch.y.defined()) loss = loss_function(output, batch.y);
    call(Event::after_loss);
    // Of what made the loss: a callback may have replaced y since another one asked, and may yet.
    items_in_batch.reset();
    if (loss.defined()) count_items();
  }
  if (!training) return;
  PEAL_CHECK(loss.defined(),
             "[launch] learner: a batch has no y, so there is no loss to learn from; give samples "
             "one, or a loss of your own in after_pred (Trainer: compute_loss)");
  bool learnt = false;
  with_events<Event::before_backward>([&] {
    backward();
    learnt = true;
  });
  ++train_iter;
  // Without the backward that averages them, gradients of the batches before wait for the next.
  if (!sync_gradients || (!learnt && samples > 0)) return;
  with_events<Event::before_step>([&] { prepared_->step(); });
  prepared_->zero_grad();
  samples = 0;
}

void Loop::backward() {
  const auto mine = static_cast<double>(batch.size());
  samples += mine;
  const auto turn = accelerator_->turn(*prepared_model_, sync_gradients);
  const double counts = count_items();
  // A mean over nothing is no number, and others wait for gradients all the same.
  if (counts == 0 && !std::isfinite(loss.detach().item<double>())) loss = mul(sum(output), 0);
  accelerator_->backward(loss, counts);
}

// Once a batch: targets on a device are waited for.
double Loop::count_items() {
  if (!items_in_batch) items_in_batch = items ? items(batch) : static_cast<double>(batch.size());
  return *items_in_batch;
}

bool Loop::agreed(bool mine) const {
  if (job.world() == 1) return mine;
  return job.group().broadcast_object(mine ? "yes" : "no") == "yes";
}

double Loop::pct_train() const {
  const auto of_epoch = static_cast<double>(std::max<std::int64_t>(training_iters_, 1));
  return (epoch + static_cast<double>(iter) / of_epoch) / epochs;
}

}  // namespace peal::launch
