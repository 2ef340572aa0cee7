// SPDX-License-Identifier: Apache-2.0
#include <peal/examples/text/stages.h>

#include <peal/autograd/intra_op.h>
#include <peal/data/text/rules.h>
#include <peal/data/text/tokenizer.h>
#include <peal/launch/training/export_run.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace texts {

void print(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);  // at once, where it goes to a file
}

std::string words_beside(const std::string& checkpoint) {
  return launch::beside(checkpoint, ".words");
}

Metadata settings_of(const std::string& file, Options& o) {
  Metadata saved = load_safetensors(file).metadata;
  for (const auto& [name, size] :
       {std::pair("emb", &o.emb), std::pair("hidden", &o.hidden), std::pair("layers", &o.layers),
        std::pair("seq_len", &o.seq_len)}) {
    PEAL_CHECK(saved.contains(name) && saved.contains("stage"), "09_train_text: ", file,
               " has no setting '", name,
               "'; is it a checkpoint of another program, or of an older version of this one?");
    *size = std::stoll(saved[name]);
  }
  return saved;
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

nn::Schedule cycles(double rate, std::int64_t steps, int epochs, int single) {
  std::vector<nn::Schedule> all;
  std::vector<std::int64_t> ends;
  for (int epoch = 0, length = 0; epoch < epochs; epoch += length, rate /= 2) {
    length = epoch < single ? 1 : epochs - epoch;
    if (epoch > 0) ends.push_back(epoch * steps);
    all.push_back(nn::one_cycle_lr({rate, std::max<std::int64_t>(2, steps * length)}));
  }
  return nn::sequential(all, ends);
}

void fit(launch::Job& job, const Options& o, const data::Vocabulary& words,
         nn::DistributedDataParallel& model, nn::Optimizer& optimizer, nn::LRScheduler& scheduler,
         data::DataLoader& training, data::DataLoader& testing, launch::EpochTrainerOptions options,
         const launch::Step& loss) {
  if (!o.export_file.empty()) {
    launch::export_run(o.export_file, model, training, testing, o.run.epochs, scheduler);
  }
  options.settings.insert({{"data", o.data},
                           {"stage", o.stage},
                           {"emb", std::to_string(o.emb)},
                           {"hidden", std::to_string(o.hidden)},
                           {"layers", std::to_string(o.layers)},
                           {"seq_len", std::to_string(o.seq_len)},
                           {"drop", fmt::format("{}", o.drop)}});
  options.tell = print;
  options.parts = {{"scheduler", scheduler}};
  options.after_step = [&] { scheduler.step(); };
  options.before_save = [&] { words.save(words_beside(o.run.save)); };
  launch::RunArguments now = o.run;
  if (o.until > 0) now.epochs = std::min(o.until, now.epochs);
  launch::EpochTrainer(job, now, model, optimizer, options).fit(training, testing, loss);
}

}  // namespace texts
