// SPDX-License-Identifier: Apache-2.0
// Rows of a table: who of the people in UCI's Adult earns more than 50,000 dollars a year?
//
// The book (docs/book): chapter 8, batch norm over ranks.
//
//   launch/tools/peal-mpirun -n 2 build/release/examples/10_train_table --data adult
//     --num_train_epochs 5 --output_dir run --save_strategy epoch
//   build/release/examples/10_train_table --resume_from_checkpoint run --do_train false
//     --data others.csv
//
// What the training rows say about words and numbers (data/tables/statistics.h) is saved beside the
// checkpoints, and makes the codes of rows that the model has never seen. Batch norm is
// synchronised, so that ranks learn what one process learns from batches as large as theirs
// together. The Trainer's arguments are options, all of them: docs/training-arguments.md.
#include <peal/data/tables/encoded.h>
#include <peal/examples/adult.h>
#include <peal/examples/trainer_program.h>
#include <peal/launch/job.h>
#include <peal/launch/print.h>
#include <peal/launch/training/read_by_all.h>
#include <peal/launch/training/trainer/export_run.h>
#include <peal/nn/metrics/classification.h>
#include <peal/nn/models/tabular.h>
#include <peal/nn/parallel/sync_batch_norm.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

using namespace peal;

namespace {

data::Table read_people(const std::filesystem::path& file, const launch::Job& job) {
  launch::check_all_read(file, job.world());
  return adult::read_people(file);
}

}  // namespace

int main(int argc, char** argv) {
  launch::TrainingArguments arguments = trainer_program::defaults;
  arguments.per_device_train_batch_size = 64;
  arguments.per_device_eval_batch_size = 1000;
  arguments.learning_rate = 5e-3;
  arguments.weight_decay = 1e-2;
  std::string data, run_file;
  launch::CommandLine line(
      "Trains a TabularModel on UCI's Adult, or with --do_train false judges the model of "
      "--resume_from_checkpoint; start it with peal-run or mpirun for several ranks.");
  line.option("--data", &data, "folder with adult.data and adult.test, or a file of rows to judge");
  line.option("--export", &run_file, "file for first weights, batches and rates, of one rank");
  if (const auto status = launch::parse_arguments(line, arguments, argc, argv)) return *status;

  return launch::run_main([&](launch::Job& job) {
    PEAL_CHECK(!data.empty(),
               "10_train_table: where are adult.data and adult.test? Name their folder by --data");
    const auto beside = [](const std::string& model) {
      return launch::beside(model, ".table.json");
    };
    const std::filesystem::path here(data);
    std::optional<data::Table> train;
    if (arguments.do_train) train = read_people(here / "adult.data", job);
    if (!train) arguments.resume_from_checkpoint = launch::checkpoint_to_judge(job, arguments);
    const data::TableStatistics statistics =
        train ? data::statistics_of(*train, adult::columns)
              : data::load_statistics(beside(arguments.resume_from_checkpoint));
    const auto test =
        data::encoded(read_people(train ? here / "adult.test" : here, job), statistics);
    const auto learnt = train ? data::encoded(*train, statistics) : nullptr;

    manual_seed(static_cast<std::uint64_t>(arguments.seed));  // parameters are drawn from it
    nn::TabularModel net({.embeddings = data::embedding_sizes(statistics),
                          .numbers = std::ssize(statistics.numbers),
                          .outputs = std::ssize(statistics.target.words)});
    if (job.world() > 1) nn::convert_sync_batchnorm(net, job.group());
    launch::TrainerOptions options{
        .train_dataset = learnt,
        .eval_dataset = test,
        .forward =
            [](nn::Module& model, const data::Batch& batch) {
              return model.call(&nn::TabularModel::predict, batch.x, batch["numbers"]);
            },
        .compute_metrics = {{"accuracy", std::make_shared<nn::Accuracy>()},
                            {"f1", std::make_shared<nn::F1Score>()}},
        // Halved after each epoch.
        .lr_scheduler =
            [&](std::int64_t done, std::int64_t updates) {
              const double epochs = arguments.num_train_epochs * static_cast<double>(done);
              return std::pow(0.5, std::floor(epochs / static_cast<double>(updates)));
            },
        .settings = {{"data", "adult"},
                     {"train_samples", std::to_string(learnt ? learnt->size() : 0)}},
        .save_processing =
            [&](const std::string& folder) { data::save_statistics(beside(folder), statistics); },
        .tell = launch::print};
    if (!run_file.empty()) options.callbacks = {std::make_shared<launch::ExportRun>(run_file)};
    launch::Trainer trainer(job, net, arguments, options);
    trainer_program::train_or_judge(trainer);
  });
}
