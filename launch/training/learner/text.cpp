// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/permute.h>
#include <peal/comm/group/agree.h>
#include <peal/comm/group/failure_while.h>
#include <peal/launch/training/learner/exported.h>
#include <peal/launch/training/learner/text.h>
#include <peal/nn/checkpoint.h>
#include <peal/nn/loss.h>

#include <nlohmann/json.hpp>

#include <memory>
#include <sstream>
#include <utility>

namespace peal::launch {
namespace {

using nlohmann::json;

constexpr const char* text_maker = "learner of texts";
constexpr const char* words_key = "words";  // a line each
constexpr const char* lstm_key = "awd_lstm";
constexpr const char* classifier_key = "text_classifier";

std::string text_of_lstm(const nn::AwdLstmSettings& model) {
  return json{
      {"vocabulary", model.vocabulary}, {"emb_sz", model.emb_sz},       {"n_hid", model.n_hid},
      {"n_layers", model.n_layers},     {"pad_token", model.pad_token}, {"bidir", model.bidir},
      {"output_p", model.output_p},     {"hidden_p", model.hidden_p},   {"input_p", model.input_p},
      {"embed_p", model.embed_p},       {"weight_p", model.weight_p}}
      .dump();
}

nn::AwdLstmSettings lstm_of_text(const std::string& text) {
  const json all = json::parse(text);
  nn::AwdLstmSettings model = nn::awd_lstm_classifier(all.at("vocabulary"));
  all.at("emb_sz").get_to(model.emb_sz);
  all.at("n_hid").get_to(model.n_hid);
  all.at("n_layers").get_to(model.n_layers);
  all.at("pad_token").get_to(model.pad_token);
  all.at("bidir").get_to(model.bidir);
  all.at("output_p").get_to(model.output_p);
  all.at("hidden_p").get_to(model.hidden_p);
  all.at("input_p").get_to(model.input_p);
  all.at("embed_p").get_to(model.embed_p);
  all.at("weight_p").get_to(model.weight_p);
  return model;
}

std::string text_of_classifier(const nn::TextClassifierSettings& settings) {
  return json{{"seq_len", settings.seq_len},
              {"max_len", settings.max_len},
              {"lin_ftrs", settings.lin_ftrs},
              {"ps", settings.ps}}
      .dump();
}

nn::TextClassifierSettings classifier_of_text(const std::string& text) {
  const json all = json::parse(text);
  return {all.at("seq_len"), all.at("max_len"), all.at("lin_ftrs"), all.at("ps")};
}

void note_text_settings(LearnerOptions& options, const data::Vocabulary& words,
                        const nn::AwdLstmSettings& model) {
  std::string lines;
  for (const std::string& word : words.words()) lines += word + '\n';
  options.settings[words_key] = lines;
  options.settings[lstm_key] = text_of_lstm(model);
}

void complete_text(LearnerOptions& options) {
  if (!options.loss) options.loss = nn::CrossEntropyLoss{};
  if (options.moms.empty()) options.moms = {0.8, 0.7, 0.8};
}

std::vector<std::string> paths_of_lstms(const std::string& encoder, std::int64_t layers) {
  std::vector<std::string> paths;
  for (std::int64_t i = 0; i < layers; ++i) paths.push_back(concat(encoder, ".rnns.", i));
  return paths;
}

nn::Module encoder_of(Learner& learner) {
  const bool speaks = learner.model.as<nn::AwdLanguageModel>() != nullptr;
  PEAL_CHECK(speaks || learner.model.as<nn::AwdTextClassifier>() != nullptr,
             "[launch] learner: expected the learner of a language model or a text classifier, got "
             "one of ",
             learner.model.class_name());
  return learner.model.get_submodule(speaks ? "0" : "0.module");
}

}  // namespace

void RNNRegularizer::before_backward(Loop& loop) {
  if (!raw.defined()) return;
  loss_ = loop.loss;
  loop.loss = loop.loss + nn::activation_regularization(raw, dropped, alpha_, beta_);
}

void RNNRegularizer::after_backward(Loop& loop) {
  if (loss_.defined()) loop.loss = loss_;
  raw = dropped = loss_ = Tensor();
}

Learner language_model_learner(Job& job, Loaders loaders, const data::Vocabulary& words,
                               LearnerOptions options,
                               std::optional<nn::AwdLstmSettings> settings) {
  const nn::AwdLstmSettings sizes = settings.value_or(nn::awd_lstm_language_model(words.size()));
  complete_text(options);
  note_text_settings(options, words, sizes);
  if (!options.forward) {
    const auto regularizer = std::make_shared<RNNRegularizer>();
    options.callbacks.push_back(regularizer);
    options.forward = [regularizer](nn::Module& model, const data::Batch& batch) {
      const auto outputs = model.call(&nn::AwdLanguageModel::run, batch.x);
      if (model.training()) {
        regularizer->raw = outputs.raw;
        regularizer->dropped = outputs.dropped;
      }
      return transpose(outputs.logits, 1, 2);
    };
  }
  if (options.groups.empty()) {
    for (const std::string& path : paths_of_lstms("0", sizes.n_layers)) {
      options.groups.push_back({path});
    }
    options.groups.push_back({"0.encoder", "0.encoder_dp", "1"});
  }
  return Learner(job, loaders, nn::AwdLanguageModel(sizes), std::move(options));
}

Learner text_classifier_learner(Job& job, Loaders loaders, const data::Vocabulary& words,
                                std::vector<std::string> classes, LearnerOptions options,
                                std::optional<nn::AwdLstmSettings> encoder,
                                const nn::TextClassifierSettings& settings) {
  PEAL_CHECK(!classes.empty(), "[launch] text_classifier_learner: there is no class to learn");
  const nn::AwdLstmSettings sizes = encoder.value_or(nn::awd_lstm_classifier(words.size(), 0.5));
  complete_text(options);
  note_text_settings(options, words, sizes);
  options.settings[classifier_key] = text_of_classifier(settings);
  options.classes = std::move(classes);
  if (options.groups.empty()) {
    options.groups = {{"0.module.encoder", "0.module.encoder_dp"}};
    for (const std::string& path : paths_of_lstms("0.module", sizes.n_layers)) {
      options.groups.push_back({path});
    }
    options.groups.push_back({"1"});
  }
  const std::int64_t outputs = std::ssize(options.classes);
  return Learner(job, loaders, nn::AwdTextClassifier(sizes, outputs, settings), std::move(options));
}

data::Vocabulary vocabulary_in(const std::filesystem::path& file) {
  std::vector<std::string> words;
  std::istringstream lines(setting_of(exported(file), file, words_key, text_maker));
  for (std::string line; std::getline(lines, line);) words.push_back(line);
  return data::Vocabulary::of_words(std::move(words));
}

Learner load_text_classifier_learner(Job& job, const std::filesystem::path& file,
                                     LearnerOptions options) {
  const Exported there = exported(file);
  std::optional<nn::Module> model;
  try {
    model = nn::AwdTextClassifier(
        lstm_of_text(setting_of(there, file, lstm_key, text_maker)), std::ssize(there.classes),
        classifier_of_text(setting_of(there, file, classifier_key, text_maker)));
  } catch (const json::exception& error) {
    fail(concat("[launch] learner: ", file.string(),
                ": the sizes of its model are not what was exported: ", error.what()));
  }
  complete_text(options);
  return load_learner(job, file, *model, std::move(options));
}

void save_encoder(Learner& learner, const std::filesystem::path& file) {
  const nn::Module encoder = encoder_of(learner);
  rank0_first(learner.job.group(), [&] {
    if (learner.job.is_main()) nn::save_model(file, encoder);
  });
}

void load_encoder(Learner& learner, const std::filesystem::path& file) {
  nn::Module encoder = encoder_of(learner);
  const std::string wrong = comm::failure_while(learner.job.group(), "loads an encoder",
                                                [&] { nn::load_model(file, encoder); });
  comm::agree_unless(learner.job.group(), "[launch] learner: the encoder to load", "loaded", wrong,
                     "all ranks must see the same file");
}

}  // namespace peal::launch
