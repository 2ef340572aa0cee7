// SPDX-License-Identifier: Apache-2.0
// Training arguments: what every training program lets its user choose, with one spelling and one
// set of defaults, for the command line and for the Trainer. Thread safety: a value.
#pragma once

#include <peal/autograd/autocast.h>
#include <peal/launch/command_line.h>

#include <cstdint>
#include <string>

namespace peal::launch {

struct TrainingArguments {
  std::string device = "cpu", precision = "f32";  // choose_device(); f32, bf16 or f16
  std::string save, resume, json, trace;          // files; empty: none
  int epochs = 1;                                 // counted from the start, also of a resumed run
  std::int64_t batch_size = 32;                   // samples a rank and step
  double lr = 1e-3;
  std::uint64_t seed = 0;  // of parameters, order and dropout
  bool profile = false;
};

// --device, --precision, --save, ... of this line are read into `arguments`.
void add_training_options(CommandLine& line, TrainingArguments& arguments);

// While it lives, models compute in the precision that was asked for. Parameters stay f32.
Autocast autocast(const TrainingArguments& arguments);

}  // namespace peal::launch
