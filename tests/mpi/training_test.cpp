// SPDX-License-Identifier: Apache-2.0
// A training on several ranks that draw unequally often goes on, when it is resumed, as if it had
// not been interrupted: each rank where it was in its own stream of random numbers.
#include <peal/autograd/core/context.h>
#include <peal/autograd/ops/ops.h>
#include <peal/launch/training/trainer/trainer.h>
#include <peal/nn/layers/linear.h>
#include <peal/tests/folder.h>
#include <peal/tests/launch/points.h>

#include <memory>
#include <string>
#include <vector>

#include "mpi_main.h"

using namespace peal;
using testing::Folder;

namespace {

struct Outcome {
  std::vector<double> losses;                          // of each step, on this rank
  std::uint64_t offset_before = 0, offset_after = 0;   // of this rank's stream, around the steps
  std::vector<std::string> order_before, order_after;  // of DDP's plan
};

struct Look : launch::TrainerCallback {
  explicit Look(Outcome& o) : outcome(o) {}
  void on_train_begin(launch::Trainer& trainer, launch::TrainerControl&) override {
    outcome.offset_before = context().generator.offset;
    outcome.order_before = trainer.prepared_model()->ddp()->order();
  }
  void on_epoch_end(launch::Trainer& trainer, launch::TrainerControl& control) override {
    outcome.offset_after = context().generator.offset;
    outcome.order_after = trainer.prepared_model()->ddp()->order();
    if (stops) control.should_training_stop = true;
  }
  Outcome& outcome;
  bool stops = false;
};

// Two epochs, or one of them.
Outcome train(bool stops, const std::string& resume, const std::string& save) {
  launch::Job& job = testing::job();
  manual_seed(3);
  Outcome outcome;
  const auto look = std::make_shared<Look>(outcome);
  look->stops = stops;
  const launch::TrainingArguments arguments{.output_dir = save,
                                            .per_device_train_batch_size = 4,
                                            .learning_rate = 0.1,
                                            .num_train_epochs = 2,
                                            .save_strategy = save.empty() ? "no" : "epoch",
                                            .disable_tqdm = true,
                                            .optim = "sgd",
                                            .resume_from_checkpoint = resume};
  launch::Trainer trainer(job, nn::Linear(2, 3), arguments,
                          {.train_dataset = std::make_shared<testing::Points>(24),
                           .loss =
                               [&](const Tensor& output, const Tensor& y) {
                                 for (int i = 0; i < job.rank(); ++i)
                                   context().generator.reserve(8);
                                 Tensor loss = nll_loss(log_softmax(dropout(output, 0.3, true)), y);
                                 outcome.losses.push_back(loss.item<double>());
                                 return loss;
                               },
                           .callbacks = {look}});
  trainer.train();
  return outcome;
}

}  // namespace

TEST_CASE("a resumed run draws on each rank what the uninterrupted one does") {
  const Folder mine;
  const std::string path = testing::job().group().all_gather_object(mine.path / "checkpoint")[0];
  const Outcome whole = train(false, "", "");
  const Outcome first = train(true, "", path);
  const Outcome second = train(false, path, "");
  CHECK(second.offset_before == first.offset_after);
  CHECK(second.offset_after == whole.offset_after);
  std::vector<double> parts = first.losses;
  parts.insert(parts.end(), second.losses.begin(), second.losses.end());
  CHECK(parts == whole.losses);
  CHECK(whole.order_before.empty());
  CHECK(first.order_after.size() == 2);
  CHECK(second.order_before == first.order_after);  // from its first step on
  CHECK(second.order_after == whole.order_after);
  testing::job().group().barrier().wait();  // before the folder goes
}
