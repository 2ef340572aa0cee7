// SPDX-License-Identifier: Apache-2.0
// BasicNet on digits by the Learner, fastai's way: a rate is searched, then there is one cycle.
//
//   peal-run -n 2 build/release/examples/15_learner --data mnist/ --strategy zero1
//
// The book (docs/book): chapter 7, data-parallel training.
#include <peal/data/loader.h>
#include <peal/data/mnist.h>
#include <peal/data/synthetic_digits.h>
#include <peal/launch/command_line.h>
#include <peal/launch/job.h>
#include <peal/launch/print.h>
#include <peal/launch/training/learner/learner.h>
#include <peal/nn/loss.h>
#include <peal/nn/metrics/classification.h>
#include <peal/nn/models/basic_net.h>

using namespace peal;

int main(int argc, char** argv) {
  std::string folder, strategy = "ddp";
  int epochs = 2;
  launch::CommandLine line("Trains BasicNet on digits.");
  line.option("--data", &folder, "folder with MNIST's files; without it digits are drawn");
  line.option("--strategy", &strategy, "ddp, zero1, zero2 or fsdp");
  line.option("--epochs", &epochs, "of the one cycle").positive();
  if (const auto status = line.parse(argc, argv)) return *status;

  return launch::run_main([&](launch::Job& job) {
    const auto digits = [&](bool train) -> data::DatasetRef {
      if (!folder.empty()) return data::mnist(folder, train);
      return data::synthetic_digits(train ? 640 : 200, train ? 1 : 2);
    };
    data::DataLoader training(digits(true), {.batch_size = 32, .shuffle = true});
    data::DataLoader validation(digits(false), {.batch_size = 50});
    manual_seed(0);
    launch::Learner learner(job, {&training, &validation}, nn::BasicNet(),
                            {.loss = nn::NLLLoss{},
                             .metrics = {{"accuracy", std::make_shared<nn::Accuracy>()}},
                             .strategy = strategy,
                             .tell = launch::print});
    learner.fit_one_cycle(epochs, learner.lr_find(1e-6, 1, 30).valley);
  });
}
