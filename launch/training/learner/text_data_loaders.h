// SPDX-License-Identifier: Apache-2.0
// TextDataLoaders (fastai has it by this name): from texts in folders, in an archive or in a CSV
// file to the loaders of a training and of its validation, in one call: the training texts say
// which words and classes there are.
//
//   auto dls = launch::TextDataLoaders::from_folder(job, "imdb", {.valid = "test"});
//   auto dls = launch::TextDataLoaders::from_csv(job, "texts.csv", {.valid_col = "is_valid"});
//   auto learner = launch::text_classifier_learner(job, dls, {.tell = launch::print});
//   learner.fine_tune(4, 1e-2);
//   learner.predict(dls.encoded("I loved it")).label;
//
// A language model's, whose words the classifier has then (ULMFiT):
//
//   auto lm = launch::TextDataLoaders::from_folder(job, "imdb", {.valid = "test", .is_lm = true});
//   auto dls = launch::TextDataLoaders::from_folder(
//       job, "imdb", {.valid = "test", .text_vocab = lm.text_vocab()});
//
// Collective: ranks read the same texts, or all get an Error. Thread safety: the rank's thread.
#pragma once

#include <peal/data/text/text_files.h>
#include <peal/launch/training/learner/text.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace peal::launch {

struct TextDataLoadersOptions {
  // Of from_folder(): below its path, a folder of classes or a CSV file (train.csv) each.
  std::string train = "train", valid = "valid";
  // That share of all texts, which `seed` chooses, is the validation; above 0. None: from_folder()
  // has two parts, from_csv() valid_col, or it is 0.2.
  std::optional<double> valid_pct = {};
  std::uint64_t seed = 0;
  // Of CSV files; and, of from_csv(), a column that says which rows are the validation: True or 1,
  // False or 0.
  data::TextColumns columns = {};
  std::string valid_col = {};
  bool is_lm = false;                               // batches of a language model (text.h)
  std::vector<std::string> vocab = {};              // the classes; none: all that training has
  std::optional<data::Vocabulary> text_vocab = {};  // the words; none: those of training
  data::VocabularyOptions vocabulary = {};          // how these are counted
  TextLoadersOptions loaders = {};
};

class TextDataLoaders : public DataLoaders {
 public:
  using Options = TextDataLoadersOptions;

  // A folder or archive (.tar, .tar.gz) with train/<class>/ and valid/<class>/ in it; with
  // valid_pct with <class>/. Errors, on all ranks: as of read_texts(); no text to learn from or to
  // judge by; texts without classes, but for a language model; a class that training has not; a
  // valid_col.
  static TextDataLoaders from_folder(const Job& job, const std::filesystem::path& path,
                                     const Options& options = {});
  // Errors, on all ranks: as above, but the last; no such column, a cell of valid_col that says
  // neither.
  static TextDataLoaders from_csv(const Job& job, const std::filesystem::path& path,
                                  const Options& options = {});

  // The classes, in the order of their numbers, none of a language model; and the words.
  const std::vector<std::string>& vocab() const { return vocab_; }
  const data::Vocabulary& text_vocab() const { return words_; }
  // Tokens of a part of a text, as of the loaders' batches.
  std::int64_t seq_len() const { return loading_.seq_len; }
  bool is_lm() const { return is_lm_; }
  // A text as the model sees it, i64 [tokens], for Learner::predict().
  Tensor encoded(std::string_view text) const;
  // Of other texts, each once, in order, with their classes where all have one that there is.
  // Errors: of a language model; no text; a class that there is not.
  std::unique_ptr<data::DataLoader> test_dl(const data::TextFiles& texts) const;

 private:
  struct Sets {
    std::vector<data::TokenIds> learnt, judged;
    std::vector<std::int64_t> learnt_classes, judged_classes;
    std::vector<std::string> vocab;
    std::optional<data::Vocabulary> words;
    std::string outline;  // what ranks compare
  };
  using Parts = std::pair<data::TextFiles, data::TextFiles>;
  TextDataLoaders(const Job& job, Sets sets, const Options& options);
  static TextDataLoaders of_parts(const Job& job, const Options& options,
                                  const std::function<Parts()>& read);
  static Sets sets_of(const Parts& parts, const Options& options);

  Place place_;
  TextLoadersOptions loading_;
  bool is_lm_;
  std::vector<std::string> vocab_;
  data::Vocabulary words_;
};

// By the loaders' words, classes and parts; settings.seq_len is theirs. Error for loaders of a
// language model.
Learner text_classifier_learner(Job& job, TextDataLoaders& dls, LearnerOptions options = {},
                                std::optional<nn::AwdLstmSettings> encoder = {},
                                nn::TextClassifierSettings settings = {});
// Error for other loaders.
Learner language_model_learner(Job& job, TextDataLoaders& dls, LearnerOptions options = {},
                               std::optional<nn::AwdLstmSettings> settings = {});

}  // namespace peal::launch
