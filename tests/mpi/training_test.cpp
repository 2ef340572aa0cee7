// SPDX-License-Identifier: Apache-2.0
// A training on several ranks that draw unequally often goes on, when it is resumed, as if it had
// not been interrupted: each rank where it was in its own stream of random numbers.
#include <peal/autograd/core/context.h>
#include <peal/autograd/ops/ops.h>
#include <peal/data/loader.h>
#include <peal/launch/training/epoch_trainer.h>
#include <peal/nn/layers/linear.h>
#include <peal/nn/optim/sgd.h>
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
  std::uint64_t offset_before = 0, offset_after = 0;   // of this rank's stream, around fit()
  std::vector<std::string> order_before, order_after;  // of DDP's plan
};

Outcome train(int epochs, const std::string& resume, const std::string& save) {
  launch::Job& job = testing::job();
  manual_seed(3);
  nn::Linear net(2, 3);
  nn::DistributedDataParallel model(net, job.group());
  nn::SGD optimizer(model.named_parameters(), {.lr = 0.1});
  data::DataLoader training(std::make_shared<testing::Points>(24),
                            {.batch_size = 4, .shard = job.place()});
  data::DataLoader test(std::make_shared<testing::Points>(24),
                        {.shard = job.place(), .exact = true});
  launch::RunArguments arguments;
  arguments.epochs = epochs;
  arguments.resume = resume;
  arguments.save = save;
  launch::EpochTrainer trainer(job, arguments, model, optimizer);
  Outcome outcome;
  outcome.offset_before = context().generator.offset;
  outcome.order_before = model.order();
  trainer.fit(training, test, [&](const Tensor& output, const Tensor& y) {
    for (int i = 0; i < job.rank(); ++i) context().generator.reserve(8);
    Tensor loss = nll_loss(log_softmax(dropout(output, 0.3, true)), y);
    outcome.losses.push_back(loss.item<double>());
    return loss;
  });
  outcome.offset_after = context().generator.offset;
  outcome.order_after = model.order();
  return outcome;
}

}  // namespace

TEST_CASE("a resumed run draws on each rank what the uninterrupted one does") {
  const Folder mine;
  const std::string path = testing::job().group().all_gather_object(mine.path / "checkpoint")[0];
  const Outcome whole = train(2, "", "");
  const Outcome first = train(1, "", path);
  const Outcome second = train(2, path, "");
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
