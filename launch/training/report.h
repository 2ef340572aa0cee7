// SPDX-License-Identifier: Apache-2.0
// What a training tells: a line for people after each epoch, and a file with the figures. Thread
// safety: pure functions but for what they write.
#pragma once

#include <peal/autograd/core/safetensors.h>
#include <peal/launch/training/evaluation.h>
#include <peal/launch/training/run_arguments.h>

#include <string>
#include <vector>

namespace peal::launch {

// Of one epoch, over all ranks.
struct EpochReport {
  double loss = 0;  // mean over steps and ranks
  double seconds = 0, samples_per_second = 0;
  double exposed = 0;               // the share of the time that this rank waited for communication
  std::vector<Value> metrics = {};  // on the test set, afterwards
};

// "epoch 1: loss 0.3841, test accuracy 88.91 %, ...".
std::string line_of(int epoch, const EpochReport& report);

// Errors: the file cannot be written, a setting has a name that settings_of() refuses.
void write_json(const std::string& path, const RunArguments& arguments, int world,
                const Metadata& settings, const std::vector<EpochReport>& epochs);

}  // namespace peal::launch
