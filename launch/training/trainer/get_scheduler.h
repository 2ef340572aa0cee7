// SPDX-License-Identifier: Apache-2.0
// get_scheduler (transformers has it by this name): the schedules of TrainingArguments'
// lr_scheduler_type for a loop of one's own. The rate of the first step is 0 where it warms up, as
// transformers has it; nn::warm_up() begins with a part of it.
//
//   nn::AdamW adam(net.named_parameters(), {.lr = 2e-5});
//   nn::LambdaLR schedule = launch::get_scheduler("linear", adam, 100, updates);
//
// Thread safety: as of the optimizer.
#pragma once

#include <peal/nn/optim/schedulers.h>

#include <cstdint>
#include <string>

namespace peal::launch {

// Error for another name.
nn::LambdaLR get_scheduler(const std::string& name, nn::Optimizer& optimizer,
                           std::int64_t num_warmup_steps, std::int64_t num_training_steps);

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
