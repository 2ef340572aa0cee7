// SPDX-License-Identifier: Apache-2.0
// Rows of a table: who of the people in UCI's Adult earns more than 50,000 dollars a year?
//
//   launch/tools/peal-mpirun -n 2 build/release/examples/10_train_table --data adult --epochs 5
//     --save adult.safetensors
//   build/release/examples/10_train_table --resume adult.safetensors --evaluate others.csv
//
// What the training rows say about words and numbers (data/tables/statistics.h) is saved beside the
// model, and makes the codes of rows that it has never seen. Batch norm is synchronised, so that
// ranks learn what one process learns from batches as large as theirs together.
#include <peal/autograd/ops/ops.h>
#include <peal/data/loader.h>
#include <peal/data/tables/encoded.h>
#include <peal/examples/adult.h>
#include <peal/launch/job.h>
#include <peal/launch/training/epoch_trainer.h>
#include <peal/launch/training/export_run.h>
#include <peal/nn/metrics/classification.h>
#include <peal/nn/models/tabular.h>
#include <peal/nn/optim/adam.h>
#include <peal/nn/optim/scheduler.h>
#include <peal/nn/parallel/ddp.h>
#include <peal/nn/parallel/sync_batch_norm.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

using namespace peal;

namespace {

data::Table read_people(const std::filesystem::path& file, const launch::Job& job) {
  launch::check_all_read(file, job.world());
  return adult::read_people(file);
}

Tensor predict(nn::DistributedDataParallel& model, const data::Batch& batch) {
  return model.call(&nn::TabularModel::predict, batch.x, batch["numbers"]);
}

void print(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);  // at once, where it goes to a file
}

}  // namespace

int main(int argc, char** argv) {
  launch::RunArguments arguments;
  arguments.batch_size = 64;
  std::string folder, run_file;
  launch::CommandLine line(
      "Trains a TabularModel on UCI's Adult; start it with peal-run or mpirun for several ranks.");
  line.option("--data", &folder, "folder with adult.data and adult.test");
  line.option("--export", &run_file, "file for first weights, batches and rates, of one rank");
  launch::add_training_options(line, arguments);
  if (const auto status = line.parse(argc, argv)) return *status;

  return launch::run_main([&](launch::Job& job) {
    launch::find_resume(job, arguments);
    const Device device = job.device(arguments.device);
    const bool only_judges = !arguments.evaluate.empty();
    PEAL_CHECK(only_judges || !folder.empty(),
               "10_train_table: where are adult.data and adult.test? Name their folder by --data");
    const std::filesystem::path here(folder);
    const auto beside = [](const std::string& model) {
      return launch::beside(model, ".table.json");
    };
    const auto train =
        only_judges ? std::nullopt : std::optional(read_people(here / "adult.data", job));
    const data::TableStatistics statistics =
        train ? data::statistics_of(*train, adult::columns)
              : data::load_statistics(beside(launch::checkpoint_to_evaluate(arguments)));
    const auto test_set = data::encoded(
        read_people(only_judges ? std::filesystem::path(arguments.evaluate) : here / "adult.test",
                    job),
        statistics);
    data::DataLoader testing(
        test_set, {.batch_size = 1000, .shard = job.place(), .exact = true, .device = device});

    manual_seed(arguments.seed);  // parameters are drawn where the model is made
    nn::TabularModel net({.embeddings = data::embedding_sizes(statistics),
                          .numbers = std::ssize(statistics.numbers),
                          .outputs = std::ssize(statistics.target.words)});
    net.to(device);
    if (job.world() > 1) nn::convert_sync_batchnorm(net, job.group());
    nn::DistributedDataParallel model(net, job.group());
    if (only_judges) {
      nn::load_model(arguments.resume, model);
      const Autocast precision = launch::autocast(arguments);
      const auto found = launch::evaluate(
          model, testing, job.group(),
          {{"accuracy", std::make_shared<nn::Accuracy>()},
           {"F1 of " + statistics.target.words.back(), std::make_shared<nn::F1Score>()}},
          [&](const data::Batch& batch) { return predict(model, batch); });
      if (job.is_main()) {
        print(
            concat(arguments.evaluate, ": ", test_set->size(), " rows, ", launch::in_words(found)));
      }
      return;
    }

    const auto train_set = data::encoded(*train, statistics);
    data::DataLoader training(train_set, {.batch_size = arguments.batch_size,
                                          .shuffle = true,
                                          .shard = job.place(),
                                          .seed = arguments.seed,
                                          .device = device});
    nn::AdamW optimizer(model.named_parameters(), {.lr = arguments.lr.value_or(5e-3)});
    nn::LRScheduler scheduler(optimizer, nn::step_lr(training.size(), 0.5));  // halved each epoch
    if (!run_file.empty()) {
      launch::export_run(run_file, model, training, testing, arguments.epochs, scheduler);
    }
    launch::EpochTrainer trainer(
        job, arguments, model, optimizer,
        {.settings = {{"data", "adult"}, {"train_samples", std::to_string(train_set->size())}},
         .tell = print,
         .parts = {{"scheduler", scheduler}},
         .forward = predict,
         .after_step = [&] { scheduler.step(); },
         .before_save = [&] { data::save_statistics(beside(arguments.save), statistics); }});
    trainer.fit(training, testing,
                [](const Tensor& output, const Tensor& y) { return cross_entropy(output, y); });
  });
}
