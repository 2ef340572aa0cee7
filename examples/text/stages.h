// SPDX-License-Identifier: Apache-2.0
// The two stages of 09_train_text, and what they share.
#pragma once

#include <peal/data/text/text_files.h>
#include <peal/data/text/vocabulary.h>
#include <peal/examples/trainer_program.h>
#include <peal/launch/job.h>
#include <peal/launch/print.h>
#include <peal/launch/training/read_by_all.h>
#include <peal/nn/models/awd_lstm.h>

#include <string>
#include <vector>

namespace texts {

using namespace peal;
using launch::print;

inline launch::TrainingArguments defaults() {
  launch::TrainingArguments run = trainer_program::defaults;
  run.per_device_train_batch_size = run.per_device_eval_batch_size = 32;
  run.learning_rate = 1e-2;
  run.weight_decay = 0.1;
  run.adam_beta2 = 0.99;
  return run;
}

struct Options {
  launch::TrainingArguments run = defaults();
  std::string stage = "lm", data, export_file;
  std::string from, resumed;  // checkpoints
  std::int64_t emb = 400, hidden = 1152, layers = 3, seq_len = 72, max_words = 60000, min_count = 3;
  double drop = 1;
  int unfreeze = 3;
};

// Trains the model, or judges the one that was resumed.
void language_model(launch::Job& job, Options& o);
void classifier(launch::Job& job, Options& o);

std::string words_beside(const std::string& checkpoint);
// The sizes of a checkpoint's model become the options'. Error where it is of another stage.
void take_sizes(const std::string& checkpoint, const std::string& stage, Options& o);
// The tensors of a checkpoint whose names begin so, without that.
NamedTensors state_of(const std::string& file, const std::string& before);
nn::AwdLstmSettings sized(nn::AwdLstmSettings settings, const Options& o);
// Of the texts' tokens; rank 0 says how many of them the vocabulary has not.
std::vector<data::TokenIds> numbers_of(const data::TextFiles& files, const data::Vocabulary& words,
                                       launch::Job& job);
// Trains the model or judges it, with what both stages have in common. The rate has one cycle for
// each of the first `single` epochs, half as high each time, and one for the rest.
void run(launch::Job& job, const Options& o, const data::Vocabulary& words, nn::Module net,
         launch::TrainerOptions options, int single);

}  // namespace texts
