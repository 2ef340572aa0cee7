// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/shape.h>
#include <peal/launch/training/learner/exported.h>
#include <peal/launch/training/learner/tabular.h>
#include <peal/nn/loss.h>

#include <nlohmann/json.hpp>

#include <utility>

namespace peal::launch {
namespace {

using nlohmann::json;

constexpr const char* table_maker = "tabular_learner";
constexpr const char* statistics_key = "statistics";
constexpr const char* tabular_key = "tabular";  // TabularSettings

std::string text_of_settings(const nn::TabularSettings& settings) {
  json text{{"embeddings", settings.embeddings},
            {"layers", settings.layers},
            {"ps", settings.ps},
            {"embed_p", settings.embed_p},
            {"use_bn", settings.use_bn},
            {"bn_final", settings.bn_final},
            {"bn_cont", settings.bn_cont},
            {"lin_first", settings.lin_first}};
  if (settings.y_range) text["y_range"] = *settings.y_range;
  return text.dump();
}

nn::TabularSettings settings_of_text(const std::string& text) {
  const json all = json::parse(text);
  nn::TabularSettings settings;
  all.at("embeddings").get_to(settings.embeddings);
  all.at("layers").get_to(settings.layers);
  all.at("ps").get_to(settings.ps);
  all.at("embed_p").get_to(settings.embed_p);
  all.at("use_bn").get_to(settings.use_bn);
  all.at("bn_final").get_to(settings.bn_final);
  all.at("bn_cont").get_to(settings.bn_cont);
  all.at("lin_first").get_to(settings.lin_first);
  if (all.contains("y_range"))
    settings.y_range = all.at("y_range").get<std::pair<double, double>>();
  return settings;
}

// What the statistics say about the model, and how the learner asks it.
void complete(const data::TableStatistics& statistics, LearnerOptions& options,
              nn::TabularSettings& settings) {
  PEAL_CHECK(statistics.target_is_number || !statistics.target.words.empty(),
             "[launch] tabular_learner: the table has no target to learn (TableColumns::target)");
  if (settings.embeddings.empty()) settings.embeddings = data::embedding_sizes(statistics);
  settings.numbers = std::ssize(statistics.numbers);
  settings.outputs = statistics.target_is_number ? 1 : std::ssize(statistics.target.words);
  options.classes = statistics.target.words;
  if (!options.loss) {
    if (statistics.target_is_number) {
      options.loss = nn::MSELoss{};
    } else {
      options.loss = nn::CrossEntropyLoss{};
    }
  }
  if (options.forward) return;
  options.forward = [one = statistics.target_is_number](nn::Module& model,
                                                        const data::Batch& batch) {
    const Tensor output = model.call(&nn::TabularModel::predict, batch.x, batch["numbers"]);
    return one ? flatten(output, 0) : output;  // as y is
  };
}

}  // namespace

Learner tabular_learner(Job& job, Loaders loaders, const data::TableStatistics& statistics,
                        LearnerOptions options, nn::TabularSettings settings) {
  complete(statistics, options, settings);
  options.settings[statistics_key] = data::text_of(statistics);
  options.settings[tabular_key] = text_of_settings(settings);
  return Learner(job, loaders, nn::TabularModel(settings), std::move(options));
}

data::TableStatistics statistics_in(const std::filesystem::path& file) {
  return data::parse_statistics(setting_of(exported(file), file, statistics_key, table_maker),
                                file.string());
}

Learner load_tabular_learner(Job& job, const std::filesystem::path& file, LearnerOptions options) {
  const Exported there = exported(file);
  const auto statistics =
      data::parse_statistics(setting_of(there, file, statistics_key, table_maker), file.string());
  nn::TabularSettings settings;
  try {
    settings = settings_of_text(setting_of(there, file, tabular_key, table_maker));
  } catch (const json::exception& error) {
    fail(concat("[launch] tabular_learner: ", file.string(), ": '", tabular_key,
                "' is not what was exported: ", error.what()));
  }
  complete(statistics, options, settings);
  return load_learner(job, file, nn::TabularModel(settings), std::move(options));
}

}  // namespace peal::launch
