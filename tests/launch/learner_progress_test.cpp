// SPDX-License-Identifier: Apache-2.0
// The Learner's progress bars, as they are written.
#include <peal/autograd/core/context.h>
#include <peal/comm/start/threads.h>
#include <peal/launch/training/learner/learner.h>
#include <peal/launch/training/learner/progress.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/loss.h>
#include <peal/tests/errors.h>

#include "points.h"

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

using namespace peal;
using testing::Points;

namespace {

// What each rank's bars write of one epoch of 20 batches, and a validation of 2 of its own.
std::vector<std::string> written(int world, bool live, bool cancels = false) {
  struct Cancel : launch::Callback {
    int order() const override { return 60; }
    void after_batch(launch::Loop& loop) override {
      if (loop.training && loop.iter == 4) throw launch::CancelFitException();
    }
  };
  std::vector<std::ostringstream> streams(static_cast<std::size_t>(world));
  comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    manual_seed(3);
    nn::Linear net(2, 3);
    data::DataLoader training(std::make_shared<Points>(20 * world),
                              {.batch_size = 1, .shard = job.place()}),
        validation(std::make_shared<Points>(4 * world),
                   {.batch_size = 2, .shard = job.place(), .exact = true});
    std::vector<std::shared_ptr<launch::Callback>> callbacks{
        std::make_shared<launch::ProgressCallback>(
            launch::ProgressOutput{&streams[static_cast<std::size_t>(job.rank())], live})};
    if (cancels) callbacks.push_back(std::make_shared<Cancel>());
    launch::Learner learner(job, {&training, &validation}, net,
                            {.loss = nn::CrossEntropyLoss{}, .callbacks = callbacks});
    learner.fit(1, 0.1);
    learner.validate();
  });
  std::vector<std::string> texts;
  for (const auto& each : streams) texts.push_back(each.str());
  return texts;
}

}  // namespace

TEST_CASE("elsewhere than at a terminal there is a line every tenth of the way, of rank 0 alone") {
  for (const int world : {1, 2}) {
    const auto texts = written(world, false);
    const std::string& text = texts[0];
    CHECK(text.find('\r') == std::string::npos);
    for (const char* part : {"epoch 1/1 train ", " 10 %  2/20 ", "100 %  20/20 ", "loss ",
                             " samples/s", " s left", "epoch 1/1 valid ", "2/2"}) {
      testing::check_has(text, part);
    }
    // Ten and the end of the training, one and the end of each validation.
    const auto lines = std::count(text.begin(), text.end(), '\n');
    CHECK(lines == 10 + 2 + 2);
    CHECK(text.find("\nvalid ") != std::string::npos);
    if (world == 2) CHECK(texts[1].empty());
  }
}

TEST_CASE("at a terminal there is one line a pass, which changes") {
  const std::string text = written(1, true)[0];
  CHECK(std::count(text.begin(), text.end(), '\n') == 3);
  CHECK(std::count(text.begin(), text.end(), '\r') >= 3);
  testing::check_has(text, "20/20");
}

TEST_CASE("a pass that was cancelled stays where it was") {
  const std::string text = written(1, false, true)[0];
  testing::check_has(text, " 25 %  5/20 ");
  CHECK(text.find("20/20") == std::string::npos);
}
