// SPDX-License-Identifier: Apache-2.0
// Loaders of texts from where they lie, and the learners over them.
#include <peal/autograd/core/context.h>
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/threads.h>
#include <peal/data/text/tokenizer.h>
#include <peal/launch/training/learner/text_data_loaders.h>
#include <peal/nn/metrics/classification.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace peal;
using launch::TextDataLoaders;
using testing::check_has;
using testing::error_of;

namespace {

const launch::TextDataLoadersOptions small{.vocabulary = {.min_count = 1},
                                           .loaders = {.batch_size = 4, .seq_len = 4}};

std::string review(int i) {
  const char* const things[]{"film", "plot", "cast"};
  const char* const words[]{"great", "fine", "dull", "awful"};
  std::string text;
  for (int s = 0; s < 1 + i % 3; ++s) {
    text += std::string("The ") + things[(i + s) % 3] + " is " + words[i % 2 * 2 + s % 2] + ". ";
  }
  return text;
}
const char* label(int i) { return i % 2 == 0 ? "good" : "bad"; }

void write_folders(const std::filesystem::path& root) {
  for (int i = 0; i < 30; ++i) {
    const auto folder = root / (i < 24 ? "train" : "valid") / label(i);
    std::filesystem::create_directories(folder);
    std::ofstream(folder / (std::to_string(i) + ".txt")) << review(i);
  }
}

void write_csv(const std::filesystem::path& file, const std::string& mark = "True") {
  std::ofstream out(file);
  out << "label,text,is_valid\n";
  for (int i = 0; i < 30; ++i) {
    out << label(i) << ",\"" << review(i) << "\"," << (i < 24 ? "False" : mark) << '\n';
  }
}

nn::AwdLstmSettings sized(nn::AwdLstmSettings settings) {
  settings.emb_sz = 6;
  settings.n_hid = 8;
  settings.n_layers = 1;
  return settings;
}

// Every text once, by class.
std::vector<std::int64_t> classes_in(data::DataLoader& loader) {
  std::vector<std::int64_t> all;
  for (const data::Batch& batch : loader) {
    for (const auto y : batch.y.to_vector<std::int64_t>()) all.push_back(y);
  }
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

TEST_CASE("texts in folders and in a CSV file give the same loaders, on any number of ranks") {
  const testing::Folder folder;
  write_folders(folder.path / "set");
  write_csv(folder.path / "set.csv");
  for (const int world : {1, 2}) {
    comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
      launch::Job job(group);
      auto dls = TextDataLoaders::from_folder(job, folder.path / "set", small);
      CHECK(dls.vocab() == std::vector<std::string>{"bad", "good"});
      auto options = small;
      options.valid_col = "is_valid";
      auto from_csv = TextDataLoaders::from_csv(job, folder.path / "set.csv", options);
      CHECK(from_csv.vocab() == dls.vocab());
      auto words = dls.text_vocab().words(), of_csv = from_csv.text_vocab().words();
      std::sort(words.begin(), words.end());
      std::sort(of_csv.begin(), of_csv.end());
      CHECK(words == of_csv);
      CHECK(dls.train().dataset().size() == 24);
      CHECK(dls.valid().dataset().size() == 6);
      CHECK(std::ssize(classes_in(dls.valid())) == 6 / world);
      CHECK(std::ssize(classes_in(from_csv.valid())) == 6 / world);
      const auto numbers = dls.text_vocab().numbers(data::tokenize("The plot is fine."));
      CHECK(dls.encoded("The plot is fine.").to_vector<std::int64_t>() == numbers);

      options.valid_col.clear();
      options.valid_pct = 0.5;
      auto by_chance = TextDataLoaders::from_csv(job, folder.path / "set.csv", options);
      CHECK(by_chance.train().dataset().size() == 15);
      CHECK(by_chance.valid().dataset().size() == 15);
    });
  }
}

TEST_CASE("a classifier learns from folders, and judges texts of no known class") {
  const testing::Folder folder;
  write_folders(folder.path);
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    auto dls = TextDataLoaders::from_folder(job, folder.path, small);
    manual_seed(5);
    auto learner = launch::text_classifier_learner(
        job, dls, {.metrics = {{"accuracy", std::make_shared<nn::Accuracy>()}}},
        sized(nn::awd_lstm_classifier(dls.text_vocab().size(), 0)), {.max_len = 40, .ps = {0.0}});
    const double before = learner.validate().at(0).value;
    {
      const auto all_ranks = learner.distrib_ctx();
      learner.fit_one_cycle(30, 0.05);
    }
    CHECK(learner.validate().at(0).value < before);

    const data::TextFiles asked{
        "asked", {"The plot is dull. The cast is awful.", "The film is fine."}, {"0", "1"}, {}};
    const auto found = learner.get_preds(dls.test_dl(asked).get(), {.with_decoded = true});
    REQUIRE(found.predictions.shape() == Shape{2, 2});
    for (std::int64_t k = 0; k < 2; ++k) {
      const auto one = learner.predict(dls.encoded(asked.texts[static_cast<std::size_t>(k)]));
      CHECK(allclose(one.predictions, select(found.predictions, 0, k)));
      const auto number = select(found.decoded, 0, k).item<std::int64_t>();
      CHECK(one.label == dls.vocab().at(static_cast<std::size_t>(number)));
    }
    CHECK(!found.targets.defined());
    data::TextFiles known = asked;
    known.labels = {"bad", "good"};
    const auto judged = learner.get_preds(dls.test_dl(known).get());
    CHECK(judged.targets.to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 1});
    CHECK(equal(judged.predictions, found.predictions));
    known.labels = {"bad", "mixed"};
    check_has(error_of([&] { static_cast<void>(dls.test_dl(known)); }), "'mixed' is no class");
  });
}

TEST_CASE("a language model's words are the classifier's, which begins with its encoder") {
  const testing::Folder folder;
  write_folders(folder.path / "set");
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    auto options = small;
    options.is_lm = true;
    auto lm = TextDataLoaders::from_folder(job, folder.path / "set", options);
    CHECK(lm.vocab().empty());
    const auto batch = lm.train().next();
    REQUIRE(batch.has_value());
    CHECK(batch->x.shape() == batch->y.shape());
    while (lm.train().next()) {
    }
    manual_seed(5);
    auto speaker = launch::language_model_learner(
        job, lm, {}, sized(nn::awd_lstm_language_model(lm.text_vocab().size(), 0)));
    speaker.fit(1, 0.01);
    launch::save_encoder(speaker, folder.path / "encoder");

    options.is_lm = false;
    options.text_vocab = lm.text_vocab();
    auto dls = TextDataLoaders::from_folder(job, folder.path / "set", options);
    CHECK(dls.text_vocab().words() == lm.text_vocab().words());
    auto learner = launch::text_classifier_learner(
        job, dls, {}, sized(nn::awd_lstm_classifier(dls.text_vocab().size(), 0)));
    launch::load_encoder(learner, folder.path / "encoder");
    CHECK(equal(learner.model.get_parameter("0.module.encoder.weight"),
                speaker.model.get_parameter("0.encoder.weight")));

    check_has(error_of([&] { launch::text_classifier_learner(job, lm); }),
              "got a language model's");
    check_has(error_of([&] { launch::language_model_learner(job, dls); }),
              "got those of texts with classes");
  });
}

TEST_CASE("ranks that read other texts, or a text that cannot be read, are an Error on all") {
  const testing::Folder folder;
  write_csv(folder.path / "set.csv");
  write_csv(folder.path / "odd.csv", "perhaps");
  write_csv(folder.path / "set.data");
  {
    std::ifstream in(folder.path / "set.csv");
    std::ofstream out(folder.path / "other.csv");
    std::string line;
    for (int k = 0; std::getline(in, line); ++k)
      out << (k == 9 ? "good,Other.,False" : line) << '\n';
  }
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    const auto error = [&](const char* second, const auto& change) {
      auto options = small;
      options.valid_col = "is_valid";
      change(options);
      return error_of([&] {
        TextDataLoaders::from_csv(job, folder.path / (job.rank() == 0 ? "set.csv" : second),
                                  options);
      });
    };
    const auto nothing = [](auto&) {};
    CHECK(error("set.csv", nothing) == "nothing");
    check_has(error("other.csv", nothing), "every rank is to see the same files");
    check_has(error("none.csv", nothing), "none.csv");
    const auto other = [&](const auto& change) {
      return error("set.csv", [&](auto& o) {
        if (job.rank() == 1) change(o);
      });
    };
    const std::vector<std::pair<std::string, const char*>> told{
        {other([](auto& o) { o.loaders.batch_size = 5; }), "batch_size 5"},
        {other([](auto& o) { o.loaders.seq_len = 5; }), "seq_len 5"},
        {other([](auto& o) { o.loaders.seed = 5; }), "seed 5"},
        {other([](auto& o) { o.is_lm = true; }), "class"}};
    for (const auto& [text, word] : told) {
      check_has(text, word);
      check_has(text, "and to have the same options");
    }
    check_has(error("odd.csv", nothing),
              "line 26: expected True, False, 1 or 0 in column 'is_valid', got 'perhaps'");
    check_has(error("set.data", nothing), "expected a CSV file (.csv, .csv.gz), got one that");
    check_has(error("set.csv", [](auto& o) { o.valid_col = "part"; }), "expected a column 'part'");
    check_has(error("set.csv", [](auto& o) { o.valid_pct = 0.2; }), "give one");
    check_has(error("set.csv", [](auto& o) { o.vocab = {"good"}; }), "'bad' is no class");
    const auto by_seed = error("set.csv", [&](auto& o) {
      o.valid_col.clear();
      o.seed = static_cast<std::uint64_t>(job.rank());
    });
    check_has(by_seed, "every rank is to see the same files");
    auto options = small;
    options.valid_col = "is_valid";
    check_has(error_of([&] { TextDataLoaders::from_folder(job, folder.path, options); }),
              "says which rows judge in from_csv() alone");
  });
}
