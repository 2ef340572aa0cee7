// SPDX-License-Identifier: Apache-2.0
// Learners by their makers, their loaders, and a model on several devices of one process.
#include <peal/autograd/core/context.h>
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/threads.h>
#include <peal/data/tables/encoded.h>
#include <peal/launch/training/learner/data_loaders.h>
#include <peal/launch/training/learner/exported.h>
#include <peal/launch/training/learner/tabular_data_loaders.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/loss.h>
#include <peal/nn/metrics/classification.h>
#include <peal/nn/parallel/data_parallel.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include "points.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace peal;
using testing::Points;

namespace {

// Of 40 people, of whom the old ones, and the managers, are rich.
data::Table people(const testing::Folder& folder) {
  const auto file = folder.path / "people.csv";
  if (!std::filesystem::exists(file)) {
    std::ofstream out(file);
    out << "age,job,hours,income\n";
    const char* const jobs[]{"sales", "craft", "manager"};
    for (int i = 0; i < 40; ++i) {
      const int age = 20 + i * 37 % 50;
      const char* const job = jobs[i * 7 % 3];
      out << age << ',' << job << ',' << 10 + i * 13 % 40 << ','
          << (age > 45 || i * 7 % 3 == 2 ? "high" : "low") << '\n';
    }
  }
  return data::read_table(file);
}

const data::TableColumns columns{
    .categories = {"job"}, .numbers = {"age", "hours"}, .target = "income"};

}  // namespace

TEST_CASE("a tabular learner learns on two ranks what it learns on one, and is exported whole") {
  const testing::Folder folder;
  const data::Table table = people(folder);
  const auto statistics = data::statistics_of(table, columns);
  const auto rows = data::encoded(table, statistics);
  const auto file = folder.path / "people.learner";
  std::vector<double> losses[3];
  for (const int world : {1, 2}) {
    comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
      launch::Job job(group);
      launch::DataLoaders dls(job, rows, rows, {.batch_size = 8 / world, .seed = 1});
      manual_seed(5);
      auto learner = launch::tabular_learner(
          job, dls, statistics, {.metrics = {{"accuracy", std::make_shared<nn::Accuracy>()}}},
          {.layers = {8}, .ps = {0.0}});
      CHECK(learner.classes() == std::vector<std::string>{"high", "low"});
      {
        const auto all_ranks = learner.distrib_ctx();
        learner.fit_one_cycle(6, 0.05);
      }
      const auto judged = learner.validate();
      CHECK(judged.at(1).value > 0.8);
      if (job.is_main()) losses[world] = learner.recorder().batch_losses;

      learner.export_to(file);
      auto loaded = launch::load_tabular_learner(job, file);
      CHECK(launch::statistics_in(file) == statistics);
      const Tensor a = learner.get_preds().predictions;
      const Tensor b = loaded.get_preds(dls.test_dl(rows).get()).predictions;
      CHECK(max(abs(a - b)).item<float>() == 0);
      const auto one = loaded.predict(rows->get(std::vector<std::int64_t>{3}));
      CHECK(max(abs(one.predictions - select(a, 0, 3))).item<float>() < 1e-6f);
      CHECK((one.label == "high" || one.label == "low"));
    });
  }
  REQUIRE(losses[1].size() == 30);
  REQUIRE(losses[2].size() == 30);
  for (std::size_t i = 0; i < 30; ++i)
    CHECK(losses[2][i] == doctest::Approx(losses[1][i]).epsilon(1e-3));
}

TEST_CASE("a target that is a number is learnt by its squared error, row by row") {
  const testing::Folder folder;
  const data::Table table = people(folder);
  const auto statistics = data::statistics_of(
      table,
      {.categories = {"job"}, .numbers = {"age"}, .target = "hours", .target_is_number = true});
  const auto rows = data::encoded(table, statistics);
  launch::Job job;
  launch::DataLoaders dls(job, rows, rows, {.batch_size = 8});
  manual_seed(5);
  auto learner = launch::tabular_learner(job, dls, statistics, {},
                                         {.layers = {8}, .y_range = std::pair{0.0, 60.0}});
  learner.fit(1, 0.01);
  const auto found = learner.get_preds(nullptr, {.with_loss = true});
  CHECK(found.predictions.shape() == Shape{40});
  CHECK(found.losses.shape() == Shape{40});
  const Tensor error = found.predictions - found.targets;
  CHECK(learner.validate()[0].value ==
        doctest::Approx(mean(error * error).item<float>()).epsilon(1e-5));
  learner.export_to(folder.path / "hours.learner");
  auto loaded = launch::load_tabular_learner(job, folder.path / "hours.learner");
  CHECK(max(abs(loaded.get_preds(&dls.valid()).predictions - found.predictions)).item<float>() ==
        0);
}

TEST_CASE("a file of another learner is no table's, and a table without a target has no learner") {
  const testing::Folder folder;
  launch::Job job;
  manual_seed(3);
  nn::Linear net(2, 3);
  launch::Learner learner(job, {}, net, {.loss = nn::CrossEntropyLoss{}});
  const auto file = folder.path / "points.learner";
  learner.export_to(file);
  testing::check_has(testing::error_of([&] { launch::load_tabular_learner(job, file); }),
                     "was not exported by a tabular_learner");
  const auto statistics =
      data::statistics_of(people(folder), {.categories = {"job"}, .numbers = {"age"}});
  testing::check_has(testing::error_of([&] { launch::tabular_learner(job, {}, statistics, {}); }),
                     "no target");
}

TEST_CASE("loaders give full training batches, and every sample of a validation once") {
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    launch::DataLoaders dls(job, std::make_shared<Points>(13), std::make_shared<Points>(5),
                            {.batch_size = 2});
    std::int64_t samples = 0, judged = 0;
    for (const data::Batch& batch : dls.train()) {
      CHECK(batch.size() == 2);
      samples += batch.size();
    }
    CHECK(samples == 6);
    for (const data::Batch& batch : dls.valid()) judged += batch.size();
    CHECK(judged == (job.rank() == 0 ? 3 : 2));
    testing::check_has(testing::error_of([&] {
                         launch::DataLoaders(job, std::make_shared<Points>(3), nullptr,
                                             {.batch_size = 4});
                       }),
                       "fill no batch of 4");
  });
}

TEST_CASE("a table's loaders: some rows judge, and the others say how all are read") {
  const testing::Folder folder;
  const data::Table table = people(folder);
  std::ofstream(folder.path / "names.csv") << "age,job,hours,income\n";
  const auto unjudged = folder.path / "unjudged.csv";
  {
    std::ifstream in(folder.path / "people.csv");
    std::ofstream out(unjudged);
    for (std::string line; std::getline(in, line);) out << line.substr(0, line.rfind(',')) << '\n';
  }
  std::vector<std::int64_t> learnt, judged;
  for (std::int64_t row = 0; row < 40; ++row) (row % 4 == 1 ? judged : learnt).push_back(row);
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    auto dls =
        launch::TabularDataLoaders::from_csv(job, folder.path / "people.csv", columns,
                                             {.valid_idx = judged, .loaders = {.batch_size = 4}});
    CHECK(dls.statistics() == data::statistics_of(table, columns, learnt));
    CHECK(dls.train().dataset().size() == 30);
    std::vector<std::int64_t> codes;
    for (const data::Batch& batch : dls.valid()) {
      for (const auto y : batch.y.to_vector<std::int64_t>()) codes.push_back(y);
    }
    CHECK(codes.size() == 5);
    const auto whole = data::encoded(table, dls.statistics())->get(judged);
    CHECK(codes[0] == whole.y.to_vector<std::int64_t>()[job.rank() == 0 ? 0 : 1]);
    auto learner = launch::tabular_learner(job, dls, {}, {.layers = {4}});
    const auto found = learner.get_preds(dls.test_dl(table).get());
    CHECK(found.predictions.shape() == Shape{40, 2});
    CHECK(found.targets.defined());
    // Rows of which nobody knows the target (fastai: test_df.drop(columns=[target])).
    const auto asked = learner.get_preds(dls.test_dl(data::read_table(unjudged)).get());
    CHECK(max(abs(asked.predictions - found.predictions)).item<float>() == 0);
    CHECK(!asked.targets.defined());
    const auto by_chance = launch::TabularDataLoaders::from_table(
        job, table, columns, {.seed = 3, .loaders = {.batch_size = 4}});
    CHECK(by_chance.statistics() != dls.statistics());
    const auto other = testing::error_of([&] {
      launch::TabularDataLoaders::from_table(job, table, columns,
                                             {.seed = static_cast<std::uint64_t>(job.rank())});
    });
    testing::check_has(other, "every rank is to have the same table and options");
    const auto missing = testing::error_of([&] {
      launch::TabularDataLoaders::from_csv(
          job, folder.path / (job.rank() == 0 ? "people.csv" : "none.csv"), columns);
    });
    testing::check_has(missing, "none.csv");
    const auto without_rows = testing::error_of(
        [&] { launch::TabularDataLoaders::from_csv(job, folder.path / "names.csv", columns); });
    testing::check_has(without_rows, "names.csv has no row to learn from");
    const auto twice = testing::error_of([&] {
      launch::TabularDataLoaders::from_table(job, table, columns, {.valid_idx = {3, 3, 7}});
    });
    testing::check_has(twice, "expected every row once, got 3 of which 2 are different");
  });
}

TEST_CASE("rows of which nobody knows the target are no validation, on any rank") {
  const testing::Folder folder;
  const data::Table table = people(folder);
  const auto unjudged = folder.path / "unjudged.csv";
  {
    std::ifstream in(folder.path / "people.csv");
    std::ofstream out(unjudged);
    for (std::string line; std::getline(in, line);) out << line.substr(0, line.rfind(',')) << '\n';
  }
  const auto statistics = data::statistics_of(table, columns);
  for (const int ranks : {1, 2}) {
    for (const bool alone : {true, false}) {
      std::atomic<int> told = 0;
      const std::string last = testing::error_of([&] {  // and what ends a group that failed
        comm::run_ranks(ranks, [&](const comm::ProcessGroup& group) {
          launch::Job job(group);
          launch::DataLoaders dls(job, data::encoded(table, statistics),
                                  data::encoded(data::read_table(unjudged), statistics),
                                  {.batch_size = 4});
          auto learner = launch::tabular_learner(job, dls, statistics, {}, {.layers = {4}});
          CHECK(!learner.get_preds().targets.defined());  // which asks for none
          testing::check_has(testing::error_of([&] {
                               if (alone) {
                                 learner.validate();
                               } else {
                                 learner.fit(1, 0.01);
                               }
                             }),
                             "none of the 40 samples of the validation has a y");
          ++told;
        });
      });
      CHECK(told == ranks);
      if (ranks > 1) testing::check_has(last, "none of the 40 samples");
    }
  }
}

// Whose statistics, the words there are, are the same whatever rows judge.
TEST_CASE(
    "ranks that let other rows of a table judge, or have them in another order, get an Error") {
  const testing::Folder folder;
  const data::Table table = people(folder);
  std::vector<std::string> lines;
  std::ifstream in(folder.path / "people.csv");
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::swap(lines[1], lines[2]);
  std::ofstream out(folder.path / "turned.csv");
  for (const std::string& line : lines) out << line << '\n';
  out.close();
  const data::TableColumns words{.categories = {"job"}, .target = "income"};
  const launch::DataLoadersOptions loaders{.batch_size = 4};
  const std::string advice = "every rank is to have the same table and options";
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    const auto by_seed = [&](int seed) {
      return testing::error_of([&] {
        launch::TabularDataLoaders::from_table(
            job, table, words, {.seed = static_cast<std::uint64_t>(seed), .loaders = loaders});
      });
    };
    CHECK(by_seed(1) == "nothing");
    testing::check_has(by_seed(job.rank()), advice);
    const auto by_file = [&](const char* second) {
      return testing::error_of([&] {
        launch::TabularDataLoaders::from_csv(
            job, folder.path / (job.rank() == 0 ? "people.csv" : second), words,
            {.valid_idx = {38, 39}, .loaders = loaders});
      });
    };
    CHECK(by_file("people.csv") == "nothing");
    testing::check_has(by_file("turned.csv"), advice);
  });
}

TEST_CASE("on several devices of one process it learns the same, and the model comes back") {
  launch::Job job;
  const auto made = [] {
    manual_seed(3);
    return nn::Sequential(nn::Linear(2, 8), nn::ReLU(), nn::Linear(8, 3));
  };
  const auto weights = [&](std::size_t devices) {
    nn::Sequential net = made();
    launch::DataLoaders dls(job, std::make_shared<Points>(12), std::make_shared<Points>(7),
                            {.batch_size = 5, .drop_last = false, .seed = 1});
    launch::Learner learner(job, dls, net, {.loss = nn::CrossEntropyLoss{}});
    std::vector<double> found;
    if (devices > 0) {
      const auto parallel = learner.parallel_ctx(std::vector<Device>(devices), made);
      REQUIRE(learner.model.as<nn::DataParallel>() != nullptr);
      CHECK(learner.model.as<nn::DataParallel>()->replicas() == devices);
      CHECK(learner.parallel_ctx({Device{}}, made) == nullptr);  // within another one
      learner.fit_one_cycle(2, 0.05);
      found.push_back(learner.validate()[0].value);
    } else {
      learner.fit_one_cycle(2, 0.05);
      found.push_back(learner.validate()[0].value);
    }
    CHECK(learner.model.as<nn::DataParallel>() == nullptr);
    CHECK(learner.model.same_as(net));
    for (const float w : net.parameters()[0].detach().to_vector<float>()) found.push_back(w);
    return found;
  };
  const auto alone = weights(0), together = weights(3);
  for (std::size_t i = 0; i < alone.size(); ++i)
    CHECK(together[i] == doctest::Approx(alone[i]).epsilon(1e-5));
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    launch::Job ranks(group);
    launch::Learner learner(ranks, {}, made(), {.loss = nn::CrossEntropyLoss{}});
    testing::check_has(
        testing::error_of([&] { const auto none = learner.parallel_ctx({Device{}}, made); }),
        "is of one process");
  });
}
