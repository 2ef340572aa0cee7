// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/intra_op.h>
#include <peal/comm/group/agree.h>
#include <peal/comm/group/failure_while.h>
#include <peal/data/formats/csv.h>
#include <peal/data/subset.h>
#include <peal/data/text/text_set.h>
#include <peal/launch/training/learner/text_data_loaders.h>

#include <algorithm>
#include <utility>

namespace peal::launch {
namespace {

using TextParts = std::pair<data::TextFiles, data::TextFiles>;

data::TextFiles texts_at(const data::TextFiles& all, const std::vector<std::int64_t>& numbers) {
  data::TextFiles some{all.name, {}, {}, {}};
  for (const std::int64_t k : numbers) {
    const auto at = static_cast<std::size_t>(k);
    some.texts.push_back(all.texts[at]);
    some.sources.push_back(all.sources[at]);
    if (!all.labels.empty()) some.labels.push_back(all.labels[at]);
  }
  return some;
}

TextParts parted_by_chance(const data::TextFiles& all, double share, std::uint64_t seed) {
  PEAL_CHECK(share > 0 && share < 1, "valid_pct: expected a share above 0 and below 1, got ",
             share);
  const auto parts = data::random_parts(all.size(), {1 - share, share}, seed);
  return {texts_at(all, parts[0]), texts_at(all, parts[1])};
}

TextParts parted_by_column(const data::TextFiles& all, const data::Csv& csv,
                           const std::string& name) {
  PEAL_CHECK(csv.rows() == all.size(), csv.name(),
             ": expected a CSV file (.csv, .csv.gz), got one that is read as ", all.size(),
             " texts and ", csv.rows(), " rows; give it such a name");
  const auto found = std::find(csv.names().begin(), csv.names().end(), name);
  PEAL_CHECK(found != csv.names().end(), csv.name(), ": expected a column '", name,
             "' that says which rows are the validation, got none");
  const std::int64_t column = found - csv.names().begin();
  std::vector<std::int64_t> parts[2];
  for (std::int64_t row = 0; row < csv.rows(); ++row) {
    const std::string_view cell = csv.cell(row, column);
    const bool judges = cell == "True" || cell == "true" || cell == "1";
    PEAL_CHECK(judges || cell == "False" || cell == "false" || cell == "0", csv.name(), ", line ",
               csv.line(row), ": expected True, False, 1 or 0 in column '", name, "', got '", cell,
               "'");
    parts[judges ? 1 : 0].push_back(row);
  }
  return {texts_at(all, parts[0]), texts_at(all, parts[1])};
}

// What ranks compare: texts and classes, not where they lie.
void outline_texts(std::string& outline, const char* part, const data::TextFiles& texts) {
  std::string all;
  for (std::size_t k = 0; k < texts.texts.size(); ++k) {
    const auto [first, second] = comm::digest(texts.texts[k]);
    all += concat(first, ' ', second, ' ', texts.labels.empty() ? "" : texts.labels[k], '\n');
  }
  const auto [first, second] = comm::digest(all);
  outline += concat(part, " of ", texts.size(), " texts of digest ", first, ' ', second, '\n');
}

DataLoaders loaders_of_texts(const Job& job, LabelledTexts learnt, LabelledTexts judged,
                             const TextLoadersOptions& options, bool is_lm) {
  if (is_lm) {
    return language_model_loaders(job, std::move(learnt.texts), std::move(judged.texts), options);
  }
  return text_classifier_loaders(job, std::move(learnt), std::move(judged), options);
}

}  // namespace

TextDataLoaders::Sets TextDataLoaders::sets_of(const Parts& parts, const Options& options) {
  const auto& [learnt, judged] = parts;
  PEAL_CHECK(learnt.size() > 0 && judged.size() > 0, learnt.name, ": there are ", learnt.size(),
             " texts to learn from and ", judged.size(), " to judge by; give some of both");
  Sets sets;
  const auto tokens = data::tokenize_all(learnt.texts, num_threads());
  sets.words =
      options.text_vocab ? *options.text_vocab : data::Vocabulary(tokens, options.vocabulary);
  sets.learnt = sets.words->numbers_of_all(tokens, num_threads());
  sets.judged =
      sets.words->numbers_of_all(data::tokenize_all(judged.texts, num_threads()), num_threads());
  if (!options.is_lm) {
    sets.vocab = options.vocab.empty() ? learnt.classes() : options.vocab;
    sets.learnt_classes = learnt.class_numbers(sets.vocab);
    sets.judged_classes = judged.class_numbers(sets.vocab);
  }
  for (const std::string& name : sets.vocab) sets.outline += concat("class ", name, '\n');
  std::string words;
  for (const std::string& word : sets.words->words()) words += word + '\n';
  const auto [first, second] = comm::digest(words);
  sets.outline += concat(sets.words->size(), " words of digest ", first, ' ', second, '\n');
  outline_texts(sets.outline, "training", learnt);
  outline_texts(sets.outline, "validation", judged);
  const auto& [batch_size, seq_len, seed, device] = options.loaders;
  sets.outline += concat(options.is_lm ? "of a language model" : "of texts with classes",
                         ", batch_size ", batch_size, ", seq_len ", seq_len, ", seed ", seed, '\n');
  return sets;
}

TextDataLoaders TextDataLoaders::of_parts(const Job& job, const Options& options,
                                          const std::function<Parts()>& read) {
  Sets sets;
  const std::string wrong =
      comm::failure_while(job.group(), "reads texts", [&] { sets = sets_of(read(), options); });
  comm::agree_unless(job.group(), "[launch] TextDataLoaders: the texts", sets.outline, wrong,
                     "every rank is to see the same files and to have the same options");
  return {job, std::move(sets), options};
}

TextDataLoaders::TextDataLoaders(const Job& job, Sets sets, const Options& options)
    : DataLoaders(loaders_of_texts(job, {std::move(sets.learnt), std::move(sets.learnt_classes)},
                                   {std::move(sets.judged), std::move(sets.judged_classes)},
                                   options.loaders, options.is_lm)),
      place_(job.place()),
      loading_(options.loaders),
      is_lm_(options.is_lm),
      vocab_(std::move(sets.vocab)),
      words_(std::move(*sets.words)) {}

TextDataLoaders TextDataLoaders::from_folder(const Job& job, const std::filesystem::path& path,
                                             const Options& options) {
  return of_parts(job, options, [&]() -> Parts {
    PEAL_CHECK(options.valid_col.empty(), "valid_col: the column '", options.valid_col,
               "' says which rows judge in from_csv() alone; give valid, or valid_pct");
    if (options.valid_pct) {
      return parted_by_chance(data::read_texts(path, "", options.columns), *options.valid_pct,
                              options.seed);
    }
    return {data::read_texts(path, options.train, options.columns),
            data::read_texts(path, options.valid, options.columns)};
  });
}

TextDataLoaders TextDataLoaders::from_csv(const Job& job, const std::filesystem::path& path,
                                          const Options& options) {
  return of_parts(job, options, [&]() -> Parts {
    const data::TextFiles all = data::read_texts(path, "", options.columns);
    if (options.valid_col.empty()) {
      return parted_by_chance(all, options.valid_pct.value_or(0.2), options.seed);
    }
    PEAL_CHECK(!options.valid_pct, "valid_col and valid_pct both say which rows judge; give one");
    return parted_by_column(all, data::read_csv(path), options.valid_col);
  });
}

Tensor TextDataLoaders::encoded(std::string_view text) const {
  const data::TokenIds numbers = words_.numbers(data::tokenize(text));
  return Tensor::from(numbers, {std::ssize(numbers)}, Device{});
}

std::unique_ptr<data::DataLoader> TextDataLoaders::test_dl(const data::TextFiles& texts) const {
  PEAL_CHECK(!is_lm_,
             "[launch] TextDataLoaders: test_dl() is of texts with classes; these loaders "
             "are of a language model");
  PEAL_CHECK(texts.size() > 0, "[launch] TextDataLoaders: there is no text to judge");
  return text_loader(
      place_,
      {words_.numbers_of_all(data::tokenize_all(texts.texts, num_threads()), num_threads()),
       texts.labels.empty() ? std::vector<std::int64_t>{} : texts.class_numbers(vocab_)},
      loading_);
}

Learner text_classifier_learner(Job& job, TextDataLoaders& dls, LearnerOptions options,
                                std::optional<nn::AwdLstmSettings> encoder,
                                nn::TextClassifierSettings settings) {
  PEAL_CHECK(!dls.is_lm(),
             "[launch] text_classifier_learner: expected loaders of texts with "
             "classes, got a language model's (is_lm)");
  settings.seq_len = dls.seq_len();
  return text_classifier_learner(job, Loaders(dls), dls.text_vocab(), dls.vocab(),
                                 std::move(options), std::move(encoder), settings);
}

Learner language_model_learner(Job& job, TextDataLoaders& dls, LearnerOptions options,
                               std::optional<nn::AwdLstmSettings> settings) {
  PEAL_CHECK(dls.is_lm(),
             "[launch] language_model_learner: expected loaders of a language model "
             "(is_lm), got those of texts with classes");
  return language_model_learner(job, Loaders(dls), dls.text_vocab(), std::move(options),
                                std::move(settings));
}

}  // namespace peal::launch
