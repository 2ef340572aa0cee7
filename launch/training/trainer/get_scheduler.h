// SPDX-License-Identifier: Apache-2.0
// get_scheduler (transformers has it by this name): the schedules of TrainingArguments'
// lr_scheduler_type for a loop of one's own. The rate of the first step is 0 where it warms up, as
// transformers has it; nn::warm_up() begins with a part of it.
//
//   nn::AdamW adam(net.named_parameters(), {.lr = 2e-5});
//   nn::LambdaLR schedule = launch::get_scheduler("linear", adam, 100, updates);
//   ... = launch::get_scheduler("cosine_with_min_lr", adam, 100, updates, R"({"min_lr": 1e-6})");
//
// Some have numbers of their own (transformers: scheduler_specific_kwargs, lr_scheduler_kwargs),
// given as JSON, with transformers' names and defaults:
//
//   cosine                 num_cycles 0.5: half a cosine
//   cosine_with_restarts   num_cycles 1
//   polynomial             power 1, lr_end 1e-7, a rate
//   cosine_with_min_lr     num_cycles 0.5; min_lr, a rate, or min_lr_rate, a share of the rate
//   warmup_stable_decay    num_decay_steps, which has to be given: the last updates, in which the
//                          rate falls by half a cosine, to the share min_lr_ratio 0
//   inverse_sqrt           timescale: the warm-up's updates, or 10000 without one
//
// Thread safety: as of the optimizer.
#pragma once

#include <peal/nn/optim/schedulers.h>

#include <cstdint>
#include <string>

namespace peal::launch {

// Errors: another name, of it or of a number, and numbers that make no sense.
nn::LambdaLR get_scheduler(const std::string& name, nn::Optimizer& optimizer,
                           std::int64_t num_warmup_steps, std::int64_t num_training_steps,
                           const std::string& scheduler_specific_kwargs = {});

// transformers' names for two of them; both counts are of steps.
inline nn::LambdaLR get_linear_schedule_with_warmup(nn::Optimizer& optimizer,
                                                    std::int64_t num_warmup_steps,
                                                    std::int64_t num_training_steps) {
  return get_scheduler("linear", optimizer, num_warmup_steps, num_training_steps);
}
inline nn::LambdaLR get_cosine_schedule_with_warmup(nn::Optimizer& optimizer,
                                                    std::int64_t num_warmup_steps,
                                                    std::int64_t num_training_steps) {
  return get_scheduler("cosine", optimizer, num_warmup_steps, num_training_steps);
}

}  // namespace peal::launch
