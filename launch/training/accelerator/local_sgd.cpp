// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/failure_words.h>
#include <peal/autograd/core/log.h>
#include <peal/comm/group/agree.h>
#include <peal/launch/training/accelerator/local_sgd.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

namespace peal::launch {

LocalSGD::LocalSGD(Accelerator& accelerator, PreparedModel model, std::int64_t local_sgd_steps,
                   bool enabled)
    : model_(std::move(model)), unwinding_(std::uncaught_exceptions()) {
  ModelBody& body = *model_.body();
  const std::string wrong = failure_in([&] {
    const auto state = body.state.lock();
    PEAL_CHECK(local_sgd_steps >= 1, "expected an average every 1 or more batches, got ",
               local_sgd_steps);
    PEAL_CHECK(accelerator.has_prepared(model_),
               "the model is none that this accelerator has prepared");
    PEAL_CHECK(accelerator.strategy() <= Strategy::ddp, "with the strategy '",
               word_of(accelerator.strategy()),
               "' no rank has a whole model, with its optimizer, that it could train by itself; "
               "take 'ddp'");
    PEAL_CHECK(body.apart == 0, "the model is in another LocalSGD already");
    PEAL_CHECK(!state->groups.is_open(), "a step is under way; end it before");
    PEAL_CHECK(state->uneven == nullptr,
               "ranks have different numbers of batches within join_uneven_inputs, and these are "
               "to be as many; leave that before");
  });
  comm::agree_unless(
      accelerator.group(), "[accelerator] LocalSGD",
      concat("local_sgd_steps ", local_sgd_steps, ", ", enabled ? "enabled" : "not enabled"), wrong,
      "give all ranks the same");
  if (!enabled || accelerator.num_processes() == 1) return;
  // It counts from 0, and averages first in step warmup_steps.
  every_.emplace(accelerator.group(),
                 nn::PeriodicModelAveragerOptions{.period = local_sgd_steps,
                                                  .warmup_steps = local_sgd_steps - 1});
  last_.emplace(accelerator.group(), nn::PeriodicModelAveragerOptions{.period = 1});
  apart_ = model_.no_sync();
  ++body.apart;
}

LocalSGD::~LocalSGD() {
  if (!apart_) return;
  try {
    if (std::uncaught_exceptions() == unwinding_) {
      if (in_step()) {
        log_warning(
            "[accelerator] LocalSGD was left within a step, whose gradients are each rank's own; "
            "end the step before");
      }
      finish();
    }
  } catch (...) {
    log_warning("[accelerator] LocalSGD was left, and then: ", words_of_failure());
  }
  leave();
}

void LocalSGD::step() {
  if (apart_) every_->average_parameters(model_.parameters());
}

void LocalSGD::end() {
  if (!apart_) return;
  PEAL_CHECK(!in_step(),
             "[accelerator] LocalSGD::end: a step is under way, whose gradients are each rank's "
             "own; end the step before");
  finish();
}

bool LocalSGD::in_step() const {
  const auto state = model_.body()->state.lock();
  return state && state->groups.is_open();
}

void LocalSGD::finish() {
  leave();
  last_->average_parameters(model_.parameters());
}

void LocalSGD::leave() {
  if (!apart_) return;
  --model_.body()->apart;
  apart_.reset();
}

}  // namespace peal::launch
