// SPDX-License-Identifier: Apache-2.0
#include <peal/examples/text/stages.h>

#include <peal/autograd/intra_op.h>
#include <peal/data/text/rules.h>
#include <peal/data/text/tokenizer.h>
#include <peal/launch/training/trainer/export_run.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

namespace texts {

std::string words_beside(const std::string& checkpoint) {
  return launch::beside(checkpoint, ".words");
}

void take_sizes(const std::string& checkpoint, const std::string& stage, Options& o) {
  const std::string its = launch::setting_in(checkpoint, "stage");
  PEAL_CHECK(its == stage, "09_train_text: ", checkpoint, ": expected a checkpoint of the stage ",
             stage, ", got one of ", its);
  for (const auto& [name, size] :
       {std::pair("emb", &o.emb), std::pair("hidden", &o.hidden), std::pair("layers", &o.layers),
        std::pair("seq_len", &o.seq_len)})
    *size = std::stoll(launch::setting_in(checkpoint, name));
}

NamedTensors state_of(const std::string& file, const std::string& before) {
  NamedTensors state;
  for (const auto& [name, tensor] : load_safetensors(file).tensors) {
    if (name.starts_with(before)) state.emplace_back(name.substr(before.size()), tensor);
  }
  return state;
}

nn::AwdLstmSettings sized(nn::AwdLstmSettings settings, const Options& o) {
  settings.emb_sz = o.emb;
  settings.n_hid = o.hidden;
  settings.n_layers = o.layers;
  return settings;
}

std::vector<data::TokenIds> numbers_of(const data::TextFiles& files, const data::Vocabulary& words,
                                       launch::Job& job) {
  auto all = words.numbers_of_all(data::tokenize_all(files.texts, num_threads()), num_threads());
  std::int64_t tokens = 0, unknown = 0;
  for (const data::TokenIds& text : all) {
    tokens += std::ssize(text);
    unknown += std::count(text.begin(), text.end(), data::unknown_token);
  }
  if (job.is_main()) {
    print(fmt::format("{}: {} texts, {} tokens, {} of them unknown words", files.name, files.size(),
                      tokens, unknown));
  }
  return all;
}

namespace {

// The factor of the rate after `done` of so many updates.
double cycles(std::int64_t done, std::int64_t updates, int epochs, int single) {
  const std::int64_t steps = std::max<std::int64_t>(1, updates / epochs);
  const auto over = static_cast<int>(std::min<std::int64_t>(done / steps, epochs - 1));
  const int begun = std::min(over, single), length = over < single ? 1 : epochs - single;
  const auto cycle = std::max<std::int64_t>(2, steps * length + updates - steps * epochs);
  return nn::one_cycle_lr({std::pow(0.5, begun), cycle})(1, done - begun * steps);
}

}  // namespace

void run(launch::Job& job, const Options& o, const data::Vocabulary& words, nn::Module net,
         launch::TrainerOptions options, int single) {
  options.settings.insert({{"data", o.data},
                           {"stage", o.stage},
                           {"emb", std::to_string(o.emb)},
                           {"hidden", std::to_string(o.hidden)},
                           {"layers", std::to_string(o.layers)},
                           {"seq_len", std::to_string(o.seq_len)},
                           {"drop", fmt::format("{}", o.drop)}});
  options.tell = print;
  options.save_processing = [&](const std::string& folder) { words.save(words_beside(folder)); };
  const int epochs = static_cast<int>(std::ceil(o.run.num_train_epochs));
  options.lr_scheduler = [=](std::int64_t done, std::int64_t updates) {
    return cycles(done, updates, epochs, single);
  };
  if (!o.export_file.empty())
    options.callbacks.push_back(std::make_shared<launch::ExportRun>(o.export_file));
  launch::Trainer trainer(job, net, o.run, options);
  trainer_program::train_or_judge(trainer);
}

}  // namespace texts
