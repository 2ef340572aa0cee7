// SPDX-License-Identifier: Apache-2.0
// Losses that leave targets out or weigh them: however ranks and batches cut the samples, what is
// learnt and what is recorded is what one rank learns and records.
#include <doctest/doctest.h>
#include <peal/comm/start/threads.h>
#include <peal/data/tensor_dataset.h>
#include <peal/launch/training/learner/callbacks.h>
#include <peal/launch/training/learner/learner.h>
#include <peal/launch/training/learner/mixup.h>
#include <peal/launch/training/loss_items.h>
#include <peal/launch/training/trainer/trainer.h>
#include <peal/nn/loss.h>
#include <peal/nn/optim/sgd.h>
#include <peal/tests/difference.h>
#include <peal/tests/errors.h>

#include "trainer_program.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

using namespace peal;
using testing::logged;
using testing::Numbered;
using testing::quiet;
using testing::small_net;
using testing::weights_of;

namespace {

using Loss = launch::Loop::LossFunction;

const std::vector<float> shares{1, 5, 0.25f};

// Of these classes 0, 1, 2, 0, 1, 2 ... the last is left out, and the first counts once.
std::vector<Loss> uneven_losses() {
  const Tensor weight = Tensor::from(shares, {3}, Device{});
  const auto logs = [](const nn::NLLLoss& loss) -> Loss { return loss; };
  return {nn::CrossEntropyLoss{.ignore_index = 2}, nn::CrossEntropyLoss{.weight = weight},
          nn::CrossEntropyLoss{.weight = weight, .ignore_index = 0, .label_smoothing = 0.1},
          logs({.ignore_index = 2}), logs({.weight = weight})};
}

struct Learnt {
  std::vector<float> weights;
  std::vector<double> losses;
  double judged = 0;
};

double farthest(const Learnt& a, const Learnt& b) {
  if (a.weights.size() != b.weights.size() || a.losses.size() != b.losses.size()) return INFINITY;
  double most = testing::larger(0, std::abs(a.judged - b.judged));
  for (std::size_t i = 0; i < a.weights.size(); ++i)
    most = testing::larger(most, std::abs(double{a.weights[i]} - double{b.weights[i]}));
  for (std::size_t i = 0; i < a.losses.size(); ++i)
    most = testing::larger(most, std::abs(a.losses[i] - b.losses[i]));
  return most;
}

// Steps are of so many samples of all ranks, whose batches have unequally many of each class.
constexpr std::int64_t step = 8, samples = 3 * step;

Learnt by_learner(int world, std::int64_t accumulated, const Loss& loss) {
  Learnt found;
  comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    const auto set = std::make_shared<Numbered>(samples);
    data::DataLoader training(set, {.batch_size = step / world / accumulated});
    data::DataLoader validation(set, {.batch_size = 5});
    const bool takes_logs = loss.target<nn::NLLLoss>() != nullptr;
    launch::Learner learner(
        job, {&training, &validation}, small_net(),
        {.loss = loss,
         .forward =
             [&](nn::Module& net, const data::Batch& batch) {
               const Tensor output = net(batch.x / 16.0);
               return takes_logs ? log_softmax(output) : output;
             },
         .optimizer = launch::optimizer_of<nn::SGD>(nn::SGDOptions{.lr = 0.1}),
         .callbacks = {std::make_shared<launch::GradientAccumulation>(step / world)}});
    learner.fit(2, 0.1);
    const double judged = learner.validate()[0].value;
    if (job.is_main()) found = {weights_of(learner.model), learner.recorder().losses, judged};
    if (job.is_main() && accumulated > 1) found.losses.clear();  // they are of batches
  });
  return found;
}

Learnt by_trainer(int world, std::int64_t accumulated, const Loss& loss) {
  Learnt found;
  comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    const auto set = std::make_shared<Numbered>(samples);
    auto arguments = quiet();
    arguments.per_device_train_batch_size = step / world / accumulated;
    arguments.per_device_eval_batch_size = 5;
    arguments.gradient_accumulation_steps = accumulated;
    arguments.optim = "sgd";
    arguments.num_train_epochs = 2;
    const bool takes_logs = loss.target<nn::NLLLoss>() != nullptr;
    nn::Linear net = small_net();
    launch::Trainer trainer(job, net, arguments,
                            {.train_dataset = set,
                             .loss = loss,
                             .forward = [&](nn::Module& model, const data::Batch& batch) {
                               const Tensor output = model(batch.x / 16.0);
                               return takes_logs ? log_softmax(output) : output;
                             }});
    trainer.train();
    const double judged = trainer.evaluate(set)[0].value;
    if (job.is_main()) found = {weights_of(net), logged(trainer.state(), "loss"), judged};
  });
  return found;
}

}  // namespace

TEST_CASE("targets count as the loss counts them") {
  const Tensor y = Tensor::from(std::vector<std::int64_t>{0, 1, 2, 2, 0, 2}, {3, 2}, Device{});
  const Tensor weight = Tensor::from(shares, {3}, Device{});
  const auto counted = [&](const Loss& loss) { return launch::counts_of(loss)->of(y); };
  CHECK(counted(nn::CrossEntropyLoss{}) == 6);
  CHECK(counted(nn::CrossEntropyLoss{.ignore_index = 2}) == 3);
  CHECK(counted(nn::CrossEntropyLoss{.weight = weight}) == 7.75);
  CHECK(counted(nn::NLLLoss{.weight = weight, .ignore_index = 1}) == 2.75);
  const Tensor left_out = Tensor::from(std::vector<std::int64_t>{-100, -100}, {2}, Device{});
  CHECK(launch::counts_of(nn::CrossEntropyLoss{.weight = weight})->of(left_out) == 0);
  CHECK(!launch::counts_of(nn::MSELoss{}));
  CHECK(!launch::counts_of(nn::CrossEntropyLoss{.reduction = Reduction::sum}));
  CHECK(!launch::counts_of([](const Tensor& output, const Tensor&) { return mean(output); }));
}

TEST_CASE("ranks learn and record what one does, by losses that leave out or weigh targets") {
  for (const Loss& loss : uneven_losses()) {
    const Learnt whole = by_learner(1, 1, loss);
    CHECK(whole.losses.size() == 6);
    CHECK(farthest(whole, by_learner(2, 1, loss)) < 1e-5);
    CHECK(farthest(whole, by_learner(4, 1, loss)) < 1e-5);
    Learnt steps = whole;
    steps.losses.clear();
    CHECK(farthest(steps, by_learner(1, 2, loss)) < 1e-5);
    CHECK(farthest(steps, by_learner(2, 2, loss)) < 1e-5);
  }
}

TEST_CASE("so do ranks of the Trainer, and batches that are accumulated") {
  for (const Loss& loss : uneven_losses()) {
    const Learnt whole = by_trainer(1, 1, loss);
    CHECK(whole.losses.size() == 6);
    CHECK(farthest(whole, by_trainer(2, 1, loss)) < 1e-5);
    CHECK(farthest(whole, by_trainer(1, 2, loss)) < 1e-5);
    CHECK(farthest(whole, by_trainer(2, 2, loss)) < 1e-5);
  }
}

TEST_CASE("the targets of a batch are counted once, whoever asks") {
  launch::Job job;
  data::DataLoader training(std::make_shared<Numbered>(12), {.batch_size = 4}),
      validation(std::make_shared<Numbered>(6), {.batch_size = 3});
  launch::Learner learner(job, {&training, &validation}, small_net(),
                          {.loss = nn::CrossEntropyLoss{}});
  int asked = 0;
  learner.items = [&, by_targets = learner.items](const data::Batch& batch) {
    ++asked;
    return by_targets(batch);
  };
  learner.fit(2, 0.05);
  CHECK(asked == 2 * (3 + 2));
}

TEST_CASE("targets count that made the loss, whoever replaced them, and when") {
  struct Asks : launch::Callback {
    void before_batch(launch::Loop& loop) override { loop.count_items(); }
    void after_batch(launch::Loop& loop) override { counted = loop.count_items(); }
    double counted = 0;
  };
  struct LeavesOut : launch::Callback {
    void before_batch(launch::Loop& loop) override {
      whole = loop.batch.y;
      loop.batch.y = where(eq(loop.batch.y, 0), loop.batch.y, -100);
    }
    void before_backward(launch::Loop& loop) override { loop.batch.y = whole; }
    Tensor whole;
  };
  launch::Job job;
  data::DataLoader training(std::make_shared<Numbered>(6), {.batch_size = 6});
  launch::Learner learner(job, {&training}, small_net(), {.loss = nn::CrossEntropyLoss{}});
  const auto asks = std::make_shared<Asks>();
  learner.fit(1, 0.1, {.cbs = {asks, std::make_shared<LeavesOut>()}});
  CHECK(asks->counted == 2);
}

TEST_CASE("a rank whose batch has no target that counts adds nothing to the step") {
  // Samples 0 to 3 have none; rank 0 has them.
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}, {8, 1}, Device{});
  const Tensor y =
      Tensor::from(std::vector<std::int64_t>{-100, -100, -100, -100, 0, 1, 1, 0}, {8, 1}, Device{});
  const auto set = std::make_shared<data::TensorDataset>(x, y);
  Learnt found[2];
  for (const int world : {1, 2}) {
    comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
      launch::Job job(group);
      data::DataLoader training(set, {.batch_size = 8 / world});
      manual_seed(3);
      launch::Learner learner(
          job, {&training}, nn::Linear(1, 2),
          {.loss = nn::CrossEntropyLoss{},
           .forward = [](nn::Module& net,
                         const data::Batch& batch) { return unsqueeze(net(batch.x), 2); },
           .optimizer = launch::optimizer_of<nn::SGD>(nn::SGDOptions{.lr = 0.1})});
      learner.fit(2, 0.1);
      if (job.is_main())
        found[world - 1] = {weights_of(learner.model), learner.recorder().losses, 0};
    });
  }
  CHECK(found[0].losses.size() == 2);
  CHECK(farthest(found[0], found[1]) < 1e-5);
}

TEST_CASE("targets of -100 count for nothing on any rank, by a loss without settings, too") {
  const auto learnt = [](int world) {
    std::vector<float> weights;
    comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
      launch::Job job(group);
      std::vector<std::int64_t> classes(samples, -100);
      for (std::size_t i = 0; i < classes.size(); i += i % 8 == 0 ? 1 : 3) classes[i] = 1;
      const auto set = std::make_shared<data::TensorDataset>(
          reshape(cast(arange(2 * samples), DType::f32), {samples, 2}),
          Tensor::from(classes, {samples}));
      data::DataLoader training(set, {.batch_size = step / world});
      launch::Learner learner(job, {&training}, small_net(),
                              {.loss = nn::CrossEntropyLoss{},
                               .optimizer = launch::optimizer_of<nn::SGD>(nn::SGDOptions{})});
      learner.fit(1, 0.001);
      if (job.is_main()) weights = weights_of(learner.model);
    });
    return weights;
  };
  const auto one = learnt(1), two = learnt(2), before = weights_of(small_net());
  REQUIRE(one.size() == two.size());
  for (std::size_t i = 0; i < one.size(); ++i) CHECK(two[i] == doctest::Approx(one[i]));
  CHECK(one != before);
}

TEST_CASE("a mixed batch's loss is the mean over its samples, whatever their weights") {
  const Loss loss = nn::CrossEntropyLoss{.weight = Tensor::from(shares, {3}, Device{})};
  struct Weights : launch::Callback {
    void before_backward(launch::Loop& loop) override { counted = loop.items(loop.batch); }
    void after_loss(launch::Loop& loop) override {
      if (!loop.training) judged = loop.items(loop.batch);
    }
    double counted = 0, judged = 0;
  };
  launch::Job job;
  data::DataLoader training(std::make_shared<Numbered>(6), {.batch_size = 6});
  data::DataLoader validation(std::make_shared<Numbered>(6), {.batch_size = 6});
  const auto plain = std::make_shared<Weights>(), mixed = std::make_shared<Weights>();
  launch::Learner learner(job, {&training, &validation}, small_net(), {.loss = loss});
  learner.fit(1, 0.1, {.cbs = {plain}});
  learner.fit(1, 0.1, {.cbs = {mixed, std::make_shared<launch::MixUp>()}});
  CHECK(plain->counted == 12.5);
  CHECK(plain->judged == 12.5);
  CHECK(mixed->counted == 6);
  CHECK(mixed->judged == 12.5);
}

TEST_CASE("a batch without a target is nothing to learn from, and is said to be") {
  const auto set = std::make_shared<data::TensorDataset>(ones({4, 2}), Tensor());
  launch::Job job;
  data::DataLoader training(set, {.batch_size = 2});
  launch::Learner learner(job, {&training}, small_net(), {.loss = nn::CrossEntropyLoss{}});
  testing::check_has(testing::error_of([&] { learner.fit(1); }),
                     "a batch has no y, so there is no loss to learn from");
  auto arguments = quiet();
  launch::Trainer trainer(job, small_net(), arguments, {.train_dataset = set});
  testing::check_has(testing::error_of([&] { trainer.train(); }), "Trainer: compute_loss");
}
