// SPDX-License-Identifier: Apache-2.0
// A run of the loop that begins where another one stopped.
#include <peal/autograd/core/context.h>
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/threads.h>
#include <peal/launch/training/learner/learner.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/loss.h>
#include <peal/nn/optim/adam.h>
#include <peal/tests/errors.h>

#include "points.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

using namespace peal;
using testing::Points;

namespace {

constexpr int all_epochs = 3;
constexpr std::int64_t per_epoch = 5;  // batches of a rank

// All that a run has, and where it is.
struct Saved {
  launch::Start at;
  NamedTensors model, optimizer, loader;
  Generator generator;
  std::vector<double> rates;
};

NamedTensors copied(NamedTensors state) {
  for (auto& [name, tensor] : state) tensor = tensor.clone();
  return state;
}

// Stops after so many batches of all epochs, where it is not -1, and writes down the rates.
struct Stop : launch::Callback {
  Stop(std::int64_t a, std::int64_t b, Saved& s) : after(a), before(b), saved(s) {}
  int order() const override { return 70; }
  void before_batch(launch::Loop& loop) override {
    saved.rates.push_back(loop.pct_train());
    loop.optimizer->set_lr(0.1 / (1 + loop.pct_train()));
  }
  void after_batch(launch::Loop& loop) override {
    if (before + loop.train_iter != after) return;
    saved.at = {.epoch = loop.epoch, .iter = loop.iter + 1};
    saved.loader = copied(loop.training_loader->state_dict());
    throw launch::CancelFitException();
  }
  std::int64_t after, before;
  Saved& saved;
};

// From what was saved, or the beginning, to a place or the end.
Saved ran(launch::Job& job, const std::optional<Saved>& from, std::int64_t stop = -1) {
  manual_seed(3 + static_cast<std::uint64_t>(job.rank()));
  nn::Sequential net{nn::Linear(2, 8), nn::Dropout(0.3), nn::Linear(8, 3)};
  data::DataLoader training(std::make_shared<Points>(per_epoch * 2 * job.world()),
                            {.batch_size = 2, .shuffle = true, .shard = job.place(), .seed = 1});
  launch::Loop loop(job);
  loop.optimizer = std::make_shared<nn::AdamW>(net.named_parameters());
  loop.loss_function = nn::CrossEntropyLoss{};
  loop.training_loader = &training;
  loop.model = net;
  loop.prepare();
  launch::Start start;
  if (from) {
    net.load_state_dict(from->model);
    loop.optimizer->load_state_dict(from->optimizer);
    training.load_state_dict(from->loader);
    context().generator = from->generator;
    start = from->at;
  }
  Saved saved;
  loop.callbacks = {std::make_shared<Stop>(stop, start.epoch * per_epoch + start.iter, saved)};
  loop.run(all_epochs, start);
  loop.release();
  saved.model = copied(net.state_dict());
  saved.optimizer = copied(loop.optimizer->state_dict());
  saved.generator = context().generator;
  return saved;
}

void check_equal(const NamedTensors& a, const NamedTensors& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK(cast(a[i].second, DType::f64).to_vector<double>() ==
          cast(b[i].second, DType::f64).to_vector<double>());
  }
}

}  // namespace

TEST_CASE("a run that begins where another one stopped is that run, bit for bit") {
  for (const int world : {1, 2}) {
    comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
      launch::Job job(group);
      const Saved whole = ran(job, {});
      REQUIRE(whole.rates.size() == all_epochs * per_epoch);
      for (const std::int64_t stop : {1, 5, 7, 10, 14}) {
        const Saved part = ran(job, {}, stop);
        CHECK(part.at.epoch * per_epoch + part.at.iter == stop);
        const Saved rest = ran(job, part);
        std::vector<double> rates = part.rates;
        rates.insert(rates.end(), rest.rates.begin(), rest.rates.end());
        CHECK(rates == whole.rates);
        check_equal(rest.model, whole.model);
        check_equal(rest.optimizer, whole.optimizer);
      }
    });
  }
}

TEST_CASE("a loader that does not stand where the run is to begin is an error on all ranks") {
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    nn::Linear net(2, 3);
    data::DataLoader training(std::make_shared<Points>(8), {.batch_size = 2, .shard = job.place()});
    launch::Loop loop(job);
    loop.optimizer = std::make_shared<nn::AdamW>(net.named_parameters());
    loop.loss_function = nn::CrossEntropyLoss{};
    loop.training_loader = &training;
    loop.model = net;
    testing::check_has(testing::error_of([&] { loop.run(2, {.epoch = 1, .iter = 1}); }),
                       "skip_first_batches");
    testing::check_has(testing::error_of([&] { loop.run(2, {.epoch = job.rank()}); }),
                       "of epoch 1");
    training.skip_first_batches(1);
    loop.run(2, {.epoch = 1, .iter = 1});
    CHECK(loop.train_iter == 1);
  });
}

TEST_CASE("a run that begins with an epoch is not the rest of one") {
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    nn::Linear net(2, 3);
    const auto points = std::make_shared<Points>(16);
    data::DataLoader samples(points, {.batch_size = 2, .shard = job.place()});
    data::DataLoader batches(points,
                             {.batch_size = 2, .shard = job.place(), .way = data::Way::batches});
    launch::Loop loop(job);
    loop.optimizer = std::make_shared<nn::AdamW>(net.named_parameters());
    loop.loss_function = nn::CrossEntropyLoss{};
    loop.model = net;
    for (data::DataLoader* each : {&samples, &batches}) {
      loop.training_loader = each;
      each->skip_first_batches(1);
      testing::check_has(testing::error_of([&] { loop.run(1); }), "stands within epoch 0");
      testing::check_has(testing::error_of([&] { loop.run(1, {.iter = 3}); }),
                         "does not stand there");
      each->set_epoch(0);
      loop.run(1);
      CHECK(loop.train_iter == 4);
    }
  });
}

namespace {

// Does f in that event, and writes down the batches.
struct At : launch::Callback {
  At(launch::Event e, std::function<void(launch::Loop&)> g) : at(e), f(std::move(g)) {}
  int order() const override { return 70; }
  void on(launch::Event event, launch::Loop& loop) override {
    if (event == launch::Event::after_batch) iters.push_back(loop.iter);
    if (event == at) f(loop);
  }
  launch::Event at;
  std::function<void(launch::Loop&)> f;
  std::vector<std::int64_t> iters;
};

}  // namespace

TEST_CASE("where the first epoch is cancelled before its batches, the next one is whole") {
  for (const launch::Event at : {launch::Event::before_epoch, launch::Event::before_train}) {
    launch::Job job;
    nn::Linear net(2, 3);
    data::DataLoader training(std::make_shared<Points>(10), {.batch_size = 2});
    launch::Loop loop(job);
    loop.optimizer = std::make_shared<nn::AdamW>(net.named_parameters());
    loop.loss_function = nn::CrossEntropyLoss{};
    loop.training_loader = &training;
    loop.model = net;
    const auto cancels = std::make_shared<At>(at, [](launch::Loop& here) {
      if (here.epoch == 0) throw launch::CancelEpochException();
    });
    loop.callbacks = {cancels};
    training.skip_first_batches(2);
    loop.run(2, {.iter = 2});
    CHECK(cancels->iters == std::vector<std::int64_t>{0, 1, 2, 3, 4});
  }
}

TEST_CASE(
    "after a fit that was left, also by a search for rates, the next one is of whole epochs") {
  launch::Job job;
  manual_seed(3);
  nn::Linear net(2, 3);
  data::DataLoader training(std::make_shared<Points>(20), {.batch_size = 2});
  launch::Learner learner(job, {&training}, net, {.loss = nn::CrossEntropyLoss{}});
  bool left = false;
  learner.callbacks.push_back(
      std::make_shared<At>(launch::Event::after_batch, [&](launch::Loop& loop) {
        if (left || loop.train_iter < 3) return;
        left = true;
        throw launch::CancelFitException();
      }));
  learner.fit(1);
  CHECK(learner.train_iter == 3);
  try {
    learner.lr_find(1e-4, 1, 10);
  } catch (const Error&) {  // no loss fell
  }
  learner.fit(1);
  CHECK(learner.train_iter == 10);
  CHECK(training.epoch() == 2);
}
