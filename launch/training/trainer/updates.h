// SPDX-License-Identifier: Apache-2.0
// Updates: how many steps of the optimizer a training takes, and the rate of each, as pure
// functions (transformers: set_initial_training_values, get_scheduler). Thread safety: pure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace peal::launch {

struct TrainingLength {
  std::int64_t updates_an_epoch = 0;
  std::int64_t updates = 0;  // in all
  int epochs = 0;            // in which these are, the last one perhaps in part
};
// Of `batches` a rank and epoch, `accumulated` for one update, of which an epoch's last may have
// fewer: an epoch has max(batches / accumulated, 1) updates, rounded up, and so have all epochs
// together. max_steps > 0 says how many updates there are instead. Error for no batches.
TrainingLength length_of_training(std::int64_t batches, std::int64_t accumulated, double epochs,
                                  std::int64_t max_steps);

// What the learning rate is multiplied by after so many updates, of `updates`, the first `warm_up`
// of which rise from 0: lr_scheduler_type. `learning_rate` matters where rates are named at which
// it ends (lr_end, min_lr). `numbers`, its own, are an object of JSON, or empty (get_scheduler.h).
// Errors: another name, of it or of a number; what is no such object; a number that makes no sense.
std::function<double(std::int64_t done)> schedule_of(const std::string& lr_scheduler_type,
                                                     std::int64_t warm_up, std::int64_t updates,
                                                     double learning_rate,
                                                     const std::string& numbers = {});

// "1,199,882".
std::string with_commas(std::int64_t number);
// As Python prints a number: 1.0, 2.33475e-05.
std::string number_text(double number);

}  // namespace peal::launch
