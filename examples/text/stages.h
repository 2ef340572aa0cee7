// SPDX-License-Identifier: Apache-2.0
// The two stages of 09_train_text, and what they share.
#pragma once

#include <peal/data/text/text_files.h>
#include <peal/data/text/vocabulary.h>
#include <peal/launch/job.h>
#include <peal/launch/training/epoch_trainer.h>
#include <peal/nn/models/awd_lstm.h>
#include <peal/nn/optim/scheduler.h>

#include <string>
#include <vector>

namespace texts {

using namespace peal;

struct Options {
  launch::RunArguments run;
  std::string stage = "lm", data, from, export_file;
  std::int64_t emb = 400, hidden = 1152, layers = 3, seq_len = 72, max_words = 60000, min_count = 3;
  double drop = 1;
  int unfreeze = 3, until = 0;
};

// Trains the model, or judges it by o.run.evaluate.
void language_model(launch::Job& job, Options& o);
void classifier(launch::Job& job, Options& o);

void print(const std::string& line);
std::string words_beside(const std::string& checkpoint);
// What a checkpoint says about its model; sizes go into the options.
Metadata settings_of(const std::string& file, Options& o);
// The tensors of a checkpoint whose names begin so, without that.
NamedTensors state_of(const std::string& file, const std::string& before);
nn::AwdLstmSettings sized(nn::AwdLstmSettings settings, const Options& o);
// Of the texts' tokens; rank 0 says how many of them the vocabulary has not.
std::vector<data::TokenIds> numbers_of(const data::TextFiles& files, const data::Vocabulary& words,
                                       launch::Job& job);
// One cycle for each of the first `single` epochs, half as high each time, and one for the rest.
nn::Schedule cycles(double rate, std::int64_t steps, int epochs, int single);
// Runs the EpochTrainer, with what both stages save.
void fit(launch::Job& job, const Options& o, const data::Vocabulary& words,
         nn::DistributedDataParallel& model, nn::Optimizer& optimizer, nn::LRScheduler& scheduler,
         data::DataLoader& training, data::DataLoader& testing, launch::EpochTrainerOptions options,
         const launch::Step& loss);

}  // namespace texts
