// SPDX-License-Identifier: Apache-2.0
// BasicNet on Fashion-MNIST, on MNIST or on digits drawn for the purpose, with one rank or several:
//
//   launch/tools/peal-mpirun -n 2 build/release/examples/05_train_mnist --data fashion
//
// Each rank trains on its own shard with DistributedDataParallel and evaluates its own part of the
// test set; rank 0 reports. The loop, its checkpoints (--save_strategy epoch
// --resume_from_checkpoint true: the run goes on where it was stopped), mixed precision and profile
// are the Trainer's: launch/training/trainer/trainer.h. Its arguments are options, all of them:
// docs/training-arguments.md.
//
// The book (docs/book): chapter 7, data-parallel training.
#include <peal/data/mnist.h>
#include <peal/data/synthetic_digits.h>
#include <peal/examples/trainer_program.h>
#include <peal/launch/job.h>
#include <peal/launch/print.h>
#include <peal/nn/loss.h>
#include <peal/nn/metrics/classification.h>
#include <peal/nn/models/basic_net.h>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

using namespace peal;
using launch::print;

namespace {

const auto program_start = std::chrono::steady_clock::now();

// To train on, or to test on.
data::DatasetRef open_data(const std::string& name, std::int64_t samples, bool train) {
  if (name == "fashion") return data::fashion_mnist(train);
  if (name == "synthetic") {
    const std::int64_t count = samples > 0 ? samples : 12000;
    return train ? data::synthetic_digits(count, 1)
                 : data::synthetic_digits(std::min<std::int64_t>(2000, count), 2);
  }
  return data::mnist(name, train);
}

// How long it took to begin.
struct FirstStep : launch::TrainerCallback {
  void on_step_end(launch::Trainer& trainer, launch::TrainerControl&) override {
    if (std::exchange(is_done, true) || !trainer.job.is_main()) return;
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - program_start;
    print(fmt::format("first training step done {:.2f} s after the program's start", time.count()));
  }
  bool is_done = false;
};

}  // namespace

int main(int argc, char** argv) {
  launch::TrainingArguments arguments = trainer_program::defaults;
  arguments.per_device_train_batch_size = 32;
  arguments.per_device_eval_batch_size = 250;
  arguments.learning_rate = 1e-3;
  arguments.weight_decay = 1e-2;
  arguments.lr_scheduler_type = "constant";
  arguments.seed = 42;
  std::string data_name = "fashion";
  std::int64_t samples = 0;
  launch::CommandLine line(
      "Trains BasicNet on MNIST-like images, or with --do_train false judges the model of "
      "--resume_from_checkpoint; start it with peal-run or mpirun for several ranks.");
  line.option("--data", &data_name, "fashion, synthetic, or a folder with MNIST's IDX files");
  line.option("--train-samples", &samples,
              "how many synthetic digits to draw (0: 12000), and as many, up to 2000, to test on");
  if (const auto status = launch::parse_arguments(line, arguments, argc, argv)) return *status;

  return launch::run_main([&](launch::Job& job) {
    const auto train = arguments.do_train ? open_data(data_name, samples, true) : nullptr;
    manual_seed(static_cast<std::uint64_t>(arguments.seed));  // parameters are drawn from it
    launch::Trainer trainer(
        job, nn::BasicNet(), arguments,
        {.train_dataset = train,
         .eval_dataset = open_data(data_name, samples, false),
         .loss = nn::NLLLoss{},
         .compute_metrics = {{"accuracy", std::make_shared<nn::Accuracy>()}},
         .callbacks = {std::make_shared<FirstStep>()},
         .settings = {{"data", data_name}, {"train_samples", std::to_string(samples)}},
         .tell = print});
    trainer_program::train_or_judge(trainer);
  });
}
