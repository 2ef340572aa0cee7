// SPDX-License-Identifier: Apache-2.0
// Rows of a table by the Learner, fastai's way: a rate is searched, then there is one cycle, and
// the model is exported with all that it takes to judge rows that it has never seen. On UCI's
// Adult, as 10_train_table, which has checkpoints and a loop that says more.
//
//   peal-run -n 2 build/release/examples/17_learner_table --data adult --export adult.learner
//   build/release/examples/17_learner_table --load adult.learner --predict others.csv
//
// The book (docs/book): chapter 7, data-parallel training.
#include <peal/autograd/ops/ops.h>
#include <peal/data/tables/encoded.h>
#include <peal/examples/adult.h>
#include <peal/examples/learner_program.h>
#include <peal/launch/print.h>
#include <peal/launch/training/accelerator/accelerator.h>
#include <peal/launch/training/learner/data_loaders.h>
#include <peal/launch/training/learner/progress.h>
#include <peal/launch/training/learner/tabular.h>
#include <peal/nn/metrics/classification.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

using namespace peal;
using launch::print;

namespace {

struct Options : learner_program::Options {
  int epochs = 3;
  std::int64_t batch_size = 64;
};

void train(launch::Job& job, const Options& options) {
  const std::filesystem::path folder(options.data);
  const data::Table people = adult::read_people(folder / "adult.data");
  const data::TableStatistics statistics = data::statistics_of(people, adult::columns);
  launch::DataLoaders dls(job, data::encoded(people, statistics),
                          data::encoded(adult::read_people(folder / "adult.test"), statistics),
                          {.batch_size = options.batch_size});
  launch::set_seed(0);
  launch::Learner learner =
      launch::tabular_learner(job, dls, statistics,
                              {.metrics = {{"accuracy", std::make_shared<nn::Accuracy>()}},
                               .callbacks = {std::make_shared<launch::ProgressCallback>()},
                               .device = options.device,
                               .tell = print});
  const auto all_ranks = learner.distrib_ctx();
  const double lr = learner.lr_find().valley;
  if (job.is_main()) print(fmt::format("learning rate {:.1e}", lr));
  learner.fit_one_cycle(options.epochs, lr);
  if (!options.exported.empty()) learner.export_to(options.exported);
}

void predict(launch::Job& job, const Options& options) {
  launch::Learner learner = launch::load_tabular_learner(job, options.loaded);
  const auto rows =
      data::encoded(adult::read_people(options.asked), launch::statistics_in(options.loaded));
  data::DataLoader loader(rows, {.batch_size = 1000, .shard = job.place(), .exact = true});
  const auto found = learner.get_preds(&loader, {.with_decoded = true});
  const Tensor right = eq(found.decoded, found.targets);
  if (!job.is_main()) return;
  for (std::int64_t row = 0; row < std::min<std::int64_t>(5, rows->size()); ++row) {
    const auto number =
        static_cast<std::size_t>(select(found.decoded, 0, row).item<std::int64_t>());
    print(fmt::format("row {}: {} ({:.1f} %)", row + 1, learner.classes().at(number),
                      100 * max(select(found.predictions, 0, row)).item<float>()));
  }
  print(fmt::format("{}: {} rows, accuracy {:.2f} %", options.asked, rows->size(),
                    100 * mean(cast(right, DType::f32)).item<float>()));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  launch::CommandLine line(
      "Trains a tabular Learner on UCI's Adult, or asks one that was exported.");
  line.option("--epochs", &options.epochs, "of the one cycle").positive();
  line.option("--batch-size", &options.batch_size, "of each rank").positive();
  return learner_program::run(
      line, argc, argv, options,
      {.data = "folder with adult.data and adult.test",
       .asked = "rows to judge, as those of adult.test",
       .missing = "17_learner_table: name a folder to learn from (--data), or a model and rows to "
                  "judge (--load, --predict)"},
      [&](launch::Job& job) { train(job, options); },
      [&](launch::Job& job) { predict(job, options); });
}
