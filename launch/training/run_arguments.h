// SPDX-License-Identifier: Apache-2.0
// Training arguments: what every training program lets its user choose, with one spelling and one
// set of defaults, for the command line and for the EpochTrainer. Thread safety: a value.
#pragma once

#include <peal/autograd/autocast.h>
#include <peal/autograd/core/safetensors.h>
#include <peal/launch/command_line.h>

#include <cstdint>
#include <optional>
#include <string>

namespace peal::launch {

struct RunArguments {
  std::string device = "cpu", precision = "f32";  // choose_device(); f32, bf16 or f16
  std::string json, trace;                        // files; empty: none
  // Where checkpoints go (a file, or a folder: checkpoints.h), and which one to go on from: a file,
  // a folder's newest, or "auto" (find_resume()). Empty: none.
  std::string save, resume;
  bool resume_auto = false;  // it was "auto", and a run that has ended is no error
  int keep = 3;              // checkpoints in a folder
  // The metric by which the best checkpoint of a folder stays beside them; empty: none does. One of
  // the two.
  std::string keep_highest, keep_lowest;
  std::int64_t save_every = 0;   // steps; 0: after each epoch alone
  std::string evaluate;          // what to judge the model of `resume` by, instead of training
  int epochs = 1;                // counted from the start, also of a resumed run
  std::int64_t batch_size = 32;  // samples a rank and step
  // Of the optimizer. Unset: what the program thinks best, and in a resumed run what it had then.
  std::optional<double> lr = {};
  std::uint64_t seed = 0;  // of parameters, order and dropout
  bool profile = false;
};

// The checkpoint whose model --evaluate judges: --resume. Error where none is named.
const std::string& checkpoint_to_evaluate(const RunArguments& arguments);

// What each of `world` ranks is about to read. Error where there are several and it is a pipe, of
// which each would get a part.
void check_all_read(const std::string& path, int world);

// --device, --precision, --save, ... of this line are read into `arguments`.
void add_training_options(CommandLine& line, RunArguments& arguments);

// What makes a run the one it is: the seed, the world, the batch size and the precision, and what
// the program names of its own (its data), for checkpoints and figures. Error for a name of `own`
// that either has for itself.
Metadata settings_of(const RunArguments& arguments, int world, const Metadata& own);

// While it lives, models compute in the precision that was asked for. Parameters stay f32.
Autocast autocast(const RunArguments& arguments);

}  // namespace peal::launch
