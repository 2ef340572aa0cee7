// SPDX-License-Identifier: Apache-2.0
// Texts of classes by the Learner, fastai's way (ULMFiT): a language model learns the words, and a
// classifier begins with its encoder and is thawed layer by layer. As 09_train_text, which has
// checkpoints, other files of texts and a loop that says more.
//
//   peal-run -n 2 build/release/examples/19_learner_text --data reviews.tar.gz --export it.learner
//   build/release/examples/19_learner_text --load it.learner --predict my_review.txt
//
// --data is a folder or archive with train/ and test/ in it, of folders of .txt files, one a class;
// or a folder with train.csv and test.csv, columns "text" and "label".
//
// The book (docs/book): chapter 7, data-parallel training.
#include <peal/data/text/text_files.h>
#include <peal/data/text/tokenizer.h>
#include <peal/examples/learner_program.h>
#include <peal/launch/print.h>
#include <peal/launch/training/learner/progress.h>
#include <peal/launch/training/learner/text_data_loaders.h>
#include <peal/nn/metrics/classification.h>

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

using namespace peal;
using launch::print;

namespace {

struct Options : learner_program::Options {
  std::int64_t batch_size = 64, emb = 400, hidden = 1152, layers = 3, seq_len = 72;
  std::int64_t min_count = 3;
  int lm_epochs = 1, epochs = 2;
  double drop = 1, lr = 2e-2;
};

nn::AwdLstmSettings sized(nn::AwdLstmSettings settings, const Options& o) {
  settings.emb_sz = o.emb;
  settings.n_hid = o.hidden;
  settings.n_layers = o.layers;
  return settings;
}

launch::LearnerOptions learner_options(const Options& o, launch::NamedMetric metric) {
  return {.metrics = {std::move(metric)},
          .callbacks = {std::make_shared<launch::ProgressCallback>()},
          .device = o.device,
          .tell = print};
}

void train(launch::Job& job, const Options& o) {
  const std::string encoder = o.exported.empty() ? "encoder" : o.exported + ".encoder";
  launch::TextDataLoaders::Options loading{
      .valid = "test",
      .is_lm = true,
      .vocabulary = {.min_count = o.min_count},
      .loaders = {.batch_size = o.batch_size, .seq_len = o.seq_len}};

  manual_seed(0);
  {
    auto dls = launch::TextDataLoaders::from_folder(job, o.data, loading);
    loading.text_vocab = dls.text_vocab();
    auto learner = launch::language_model_learner(
        job, dls, learner_options(o, {"perplexity", std::make_shared<nn::Perplexity>()}),
        sized(nn::awd_lstm_language_model(dls.text_vocab().size(), o.drop), o));
    learner.fit_one_cycle(o.lm_epochs, 1e-2);
    launch::save_encoder(learner, encoder);
  }
  loading.is_lm = false;
  auto dls = launch::TextDataLoaders::from_folder(job, o.data, loading);
  auto learner = launch::text_classifier_learner(
      job, dls, learner_options(o, {"accuracy", std::make_shared<nn::Accuracy>()}),
      sized(nn::awd_lstm_classifier(dls.text_vocab().size(), o.drop / 2), o),
      {.max_len = 20 * o.seq_len});
  launch::load_encoder(learner, encoder);
  const auto all_ranks = learner.distrib_ctx();
  // The closer to the words, the slower, and the later.
  const double low = o.lr / std::pow(2.6, o.layers + 1);
  learner.freeze();
  learner.fit_one_cycle(1, o.lr);
  learner.freeze_to(-2);
  learner.fit_one_cycle(1, launch::slice(low / 2, o.lr / 2));
  learner.unfreeze();
  learner.fit_one_cycle(o.epochs, launch::slice(low / 4, o.lr / 4));
  if (!o.exported.empty()) learner.export_to(o.exported);
}

void predict(launch::Job& job, const Options& o) {
  launch::Learner learner = launch::load_text_classifier_learner(job, o.loaded);
  const data::Vocabulary words = launch::vocabulary_in(o.loaded);
  const data::TextFiles files = data::read_texts(o.asked);
  if (!job.is_main()) return;
  for (std::size_t k = 0; k < files.texts.size(); ++k) {
    const data::TokenIds numbers = words.numbers(data::tokenize(files.texts[k]));
    const auto found = learner.predict(Tensor::from(numbers, {std::ssize(numbers)}, Device{}));
    const auto shares = found.predictions.to_vector<float>();
    const auto number = static_cast<std::size_t>(found.decoded.item<std::int64_t>());
    print(fmt::format("{}: {} ({:.1f} %)", files.sources[k], found.label, 100 * shares[number]));
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  launch::CommandLine line("Trains Learners of texts, or asks one that was exported.");
  line.option("--emb", &o.emb, "width of a word").positive();
  line.option("--hidden", &o.hidden, "width of a layer").positive();
  line.option("--layers", &o.layers, "how many").positive();
  line.option("--seq-len", &o.seq_len, "tokens that are learnt from at a time").positive();
  line.option("--min-count", &o.min_count, "how often a word of the vocabulary comes").positive();
  line.option("--drop", &o.drop, "times the usual probabilities of dropout").not_negative();
  line.option("--lm-epochs", &o.lm_epochs, "of the language model").positive();
  line.option("--epochs", &o.epochs, "of all layers of the classifier").positive();
  line.option("--lr", &o.lr, "learning rate of the classifier's last layers").positive();
  line.option("--batch-size", &o.batch_size, "of each rank").positive();
  return learner_program::run(
      line, argc, argv, o,
      {.data = "folder or archive with train/ and test/, or their .csv files",
       .asked = "a text file, or a folder of texts",
       .missing = "19_learner_text: name texts to learn from (--data), or a model and texts to "
                  "judge (--load, --predict)"},
      [&](launch::Job& job) { train(job, o); }, [&](launch::Job& job) { predict(job, o); });
}
