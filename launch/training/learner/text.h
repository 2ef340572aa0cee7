// SPDX-License-Identifier: Apache-2.0
// Learners for texts (fastai: language_model_learner, text_classifier_learner), ULMFiT's two stages
// on AWD-LSTMs: a language model learns the words, and a classifier begins with its encoder.
//
//   auto dls = launch::language_model_loaders(job, train_tokens, valid_tokens, {.batch_size = 64});
//   auto lm = launch::language_model_learner(job, dls, words, {.tell = launch::print});
//   lm.fit_one_cycle(1, 1e-2);
//   launch::save_encoder(lm, "encoder");
//
//   auto learner = launch::text_classifier_learner(job, class_dls, words, {"neg", "pos"});
//   launch::load_encoder(learner, "encoder");
//   learner.freeze();                                  // then freeze_to(-2), ..., unfreeze()
//   learner.fit_one_cycle(1, 2e-2);
//
// Momenta are those of fastai's TextLearner, 0.8 to 0.7 and back, and layer groups are fastai's:
// the LSTMs and then embedding and decoder of the one, the embedding, the LSTMs and the linear
// layers of the other. What is exported has the words and the sizes of the model. Thread safety: as
// of Learner.
#pragma once

#include <peal/data/text/vocabulary.h>
#include <peal/launch/training/learner/data_loaders.h>
#include <peal/nn/models/text_classifier.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace peal::launch {

struct TextLoadersOptions {
  std::int64_t batch_size = 64;  // of a rank
  std::int64_t seq_len = 72;     // as of the model
  std::uint64_t seed = 0;
  Device device = {};
};

// Streams of all texts one behind the other (data/text/language_model_set.h), in each epoch of the
// training in another order; ranks share the streams. Of short texts there are fewer streams.
DataLoaders language_model_loaders(const Job& job, std::vector<data::TokenIds> training,
                                   std::vector<data::TokenIds> validation,
                                   const TextLoadersOptions& options = {});
// Texts and the number of each one's class, padded by parts (data/text/text_set.h): batches of the
// training are of texts of like length, in a drawn order, and those that fill none are left out.
struct LabelledTexts {
  std::vector<data::TokenIds> texts;
  std::vector<std::int64_t> classes;
};
// Batches of texts of about one length, padded; a rank has its part of each set.
DataLoaders text_classifier_loaders(const Job& job, LabelledTexts training,
                                    LabelledTexts validation,
                                    const TextLoadersOptions& options = {});

// A rank's part of such a set to judge: each text once, in order. Classes may be none: there is no
// y then.
std::unique_ptr<data::DataLoader> text_loader(Place place, LabelledTexts texts,
                                              const TextLoadersOptions& options = {});

// Adds nn::activation_regularization of a language_model_learner's outputs to the loss that is
// learnt from (fastai has it by this name); what is recorded is the loss itself.
class RNNRegularizer : public Callback {
 public:
  // The factors of the two parts, of how large outputs are and of how much they change.
  explicit RNNRegularizer(double alpha = 2, double beta = 1) : alpha_(alpha), beta_(beta) {}
  void before_backward(Loop& loop) override;
  void after_backward(Loop& loop) override;
  // What the model gave last: set by its forward.
  Tensor raw, dropped;

 private:
  double alpha_, beta_;
  Tensor loss_;
};

// Batches x [N, T] and y [N, T], the words that follow; outputs are logits [N, words, T]. Without
// settings the model is fastai's. Errors: as of the model and Learner.
Learner language_model_learner(Job& job, Loaders loaders, const data::Vocabulary& words,
                               LearnerOptions options = {},
                               std::optional<nn::AwdLstmSettings> settings = {});

// Batches of text_classifier_loaders(). Without settings the encoder is fastai's, with half of its
// dropout. Error where there is no class.
Learner text_classifier_learner(Job& job, Loaders loaders, const data::Vocabulary& words,
                                std::vector<std::string> classes, LearnerOptions options = {},
                                std::optional<nn::AwdLstmSettings> encoder = {},
                                const nn::TextClassifierSettings& settings = {});

// Without data, of what such a learner has exported, and the words that it knows. Errors: as of
// load_learner(); a file of another learner.
Learner load_text_classifier_learner(Job& job, const std::filesystem::path& file,
                                     LearnerOptions options = {});
data::Vocabulary vocabulary_in(const std::filesystem::path& file);

// The encoder of either, in a file that rank 0 writes, and back. Collective. Errors, on all ranks:
// another model; a file that cannot be written or read, or is of another size.
void save_encoder(Learner& learner, const std::filesystem::path& file);
void load_encoder(Learner& learner, const std::filesystem::path& file);

}  // namespace peal::launch
