// SPDX-License-Identifier: Apache-2.0
// BasicNet on digits by the Trainer, transformers' way: every argument is a flag.
//
//   peal-run -n 2 build/release/examples/16_trainer --data mnist/ --per_device_train_batch_size 64
//     --num_train_epochs 1 --eval_strategy epoch --resume_from_checkpoint true
//
// The book (docs/book): chapter 7, data-parallel training.
#include <peal/data/mnist.h>
#include <peal/data/synthetic_digits.h>
#include <peal/launch/job.h>
#include <peal/launch/print.h>
#include <peal/launch/training/trainer/trainer.h>
#include <peal/nn/loss.h>
#include <peal/nn/metrics/classification.h>
#include <peal/nn/models/basic_net.h>

#include <string>

using namespace peal;

int main(int argc, char** argv) {
  launch::TrainingArguments arguments{.do_train = true, .do_eval = true};
  std::string folder;
  launch::CommandLine line("Trains BasicNet on digits.");
  line.option("--data", &folder, "folder with MNIST's files; without it digits are drawn");
  if (const auto status = launch::parse_arguments(line, arguments, argc, argv)) return *status;

  return launch::run_main([&](launch::Job& job) {
    manual_seed(static_cast<std::uint64_t>(arguments.seed));
    const auto digits = [&](bool train) -> data::DatasetRef {
      if (!folder.empty()) return data::mnist(folder, train);
      return data::synthetic_digits(train ? 640 : 200, train ? 1 : 2);
    };
    launch::Trainer trainer(job, nn::BasicNet(), arguments,
                            {.train_dataset = digits(true),
                             .eval_dataset = digits(false),
                             .loss = nn::NLLLoss{},
                             .compute_metrics = {{"accuracy", std::make_shared<nn::Accuracy>()}},
                             .tell = launch::print});
    if (arguments.do_train) trainer.train();
    if (arguments.do_eval) trainer.evaluate();
  });
}
