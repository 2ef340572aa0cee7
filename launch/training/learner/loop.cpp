// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/ops/ops.h>
#include <peal/comm/group/agree.h>
#include <peal/launch/training/learner/loop.h>
#include <peal/nn/parallel/ddp.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <utility>

namespace peal::launch {
namespace {

// What is wrong with a loader's share of the data on several ranks; empty where nothing is. A plan
// says for itself what is each rank's.
std::string wrong_share(const data::DataLoader& loader, Place here, bool validates) {
  if (loader.plan()) return "";
  const data::LoaderOptions options = loader.options();
  const data::Sampler* const sampler = loader.sampler().get();
  if (sampler == nullptr && !options.shard) {
    return "every rank has all of the data; shard it (.shard = job.place())";
  }
  const Place share = sampler != nullptr ? sampler->whose() : *options.shard;
  if (share.rank != here.rank || share.world != here.world) {
    return concat("its ", sampler != nullptr ? "sampler" : "shard", " is of rank ", share.rank,
                  " of ", share.world, ", and this is rank ", here.rank, " of ", here.world,
                  sampler != nullptr ? "; make a DistributedSampler of job.place()"
                                     : "; give it .shard = job.place()");
  }
  const bool even = options.way == data::Way::samples && loader.dataset().size() % here.world == 0;
  if (validates && sampler == nullptr && !options.exact && !even) {
    return "some samples would count twice, to make ranks equal; count each once (.exact = true)";
  }
  return "";
}

std::string wrong_start(const data::DataLoader& loader, Start start) {
  if (start.iter == 0 || (loader.taken() == 0 && loader.consumed() > 0)) return "";
  return concat("the run is to begin after ", start.iter, " batches of epoch ", start.epoch,
                ", and the training loader stands at the beginning of one; load its state, or "
                "leave them out (skip_first_batches)");
}

}  // namespace

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
  auto in_order = callbacks;  // a copy: a callback may add others
  std::stable_sort(in_order.begin(), in_order.end(),
                   [](const auto& a, const auto& b) { return a->order() < b->order(); });
  for (const auto& each : in_order) each->on(event, *this);
}

void Loop::in_step(std::string_view where) const {
  if (job.world() == 1) return;
  comm::agree(job.group(), "[launch] learner: the training",
              concat("in ", where, ", epoch ", epoch, ", after ", train_iter, " batches"),
              "cancel on all ranks or on none, by what all have (loop.values, loop.agreed())");
}

void Loop::check_share(const data::DataLoader& loader, bool validates, Start start) const {
  std::string wrong = validates ? "" : wrong_start(loader, start);
  if (job.world() == 1) {
    PEAL_CHECK(wrong.empty(), "[launch] learner: ", wrong);
    return;
  }
  // Each batch that is learnt from is a step of all ranks.
  const std::string mine = validates ? "there"
                                     : concat("of ", loader.size(), " batches, from batch ",
                                              start.iter, " of epoch ", start.epoch);
  if (wrong.empty()) wrong = wrong_share(loader, job.place(), validates);
  comm::agree_unless(job.group(),
                     validates ? "[launch] learner: the validation loader"
                               : "[launch] learner: the training loader",
                     mine, wrong, "give every rank equally many (leave out .exact)");
}

template <class F>
void Loop::with_others(F&& f) const {
  try {
    f();
  } catch (const std::exception& error) {
    // The others are in a collective, and would wait.
    if (job.world() > 1 && !job.group().poisoned()) {
      job.group().poison(concat("[launch] learner: rank ", job.rank(), ": ", error.what()));
    }
    throw;
  }
}

void Loop::run(int number_of_epochs, Start start) {
  check_share(*training_loader, false, start);
  if (validation_loader != nullptr) check_share(*validation_loader, true);
  epochs = number_of_epochs;
  epoch = start.epoch;
  iter = over_ = start.iter;
  train_iter = 0;
  samples = 0;
  iters = training_iters_ = start.iter + training_loader->size();
  with_others([&] {
    optimizer->zero_grad();
    with_events<Event::before_fit>([&] {
      for (; epoch < epochs; ++epoch) {
        with_events<Event::before_epoch>([&] { one_epoch(); });
      }
    });
    in_step(name_of(Event::after_fit));
  });
}

void Loop::run_validation(data::DataLoader& loader) {
  check_share(loader, true);
  with_others([&] { with_events<Event::before_epoch>([&] { validate(loader); }); });
}

void Loop::one_epoch() {
  train();
  if (validation_loader != nullptr) validate(*validation_loader);
}

void Loop::train() {
  training = true;
  model.train();
  model.reset();
  with_events<Event::before_train>([&] { all_batches(*training_loader, std::exchange(over_, 0)); });
}

void Loop::validate(data::DataLoader& loader) {
  const NoGrad guard;
  training = false;
  // Forwards without synchronisation have left each rank buffers of its own.
  if (auto* const ddp = model.as<nn::DistributedDataParallel>()) ddp->sync_buffers();
  model.eval();
  model.reset();
  with_events<Event::before_validate>([&] { all_batches(loader); });
}

void Loop::all_batches(data::DataLoader& loader, std::int64_t over) {
  iter = over;
  iters = over + loader.size();
  for (const data::Batch& each : loader) {
    batch = each;
    output = loss = Tensor();
    with_events<Event::before_batch>([&] { one_batch(); });
    ++iter;
  }
}

void Loop::one_batch() {
  {
    const Autocast precision(lowered.value_or(DType::bf16), lowered.has_value());
    output = forward ? forward(model, batch) : model(batch.x);
    call(Event::after_pred);
    if (batch.y.defined()) loss = loss_function(output, batch.y);
    call(Event::after_loss);
  }
  if (!training || !loss.defined()) return;
  with_events<Event::before_backward>([&] { backward(); });
  ++train_iter;
  if (!sync_gradients) return;
  with_events<Event::before_step>([&] { step(); });
  optimizer->zero_grad();
  samples = 0;
}

// After the last batch of a step, gradients are those of the mean over its samples.
void Loop::backward() {
  const auto mine = static_cast<double>(batch.size());
  const bool first = samples == 0;
  samples += mine;
  const Tensor value = scaler ? scaler->scale(loss) : loss;
  if (auto* const ddp = model.as<nn::DistributedDataParallel>()) {
    if (sync_gradients) return ddp->backward(value, mine);
    const auto local = ddp->no_sync();
    return ddp->backward(value, mine);
  }
  if (first && sync_gradients) return value.backward();
  (value * mine).backward();
  if (!sync_gradients) return;
  for (const Tensor& parameter : optimizer->parameters()) {
    if (parameter.grad().defined()) parameter.grad().copy_(parameter.grad() * (1 / samples));
  }
}

void Loop::step() {
  if (!scaler) return optimizer->step();
  scaler->step(*optimizer);
  scaler->update();
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
