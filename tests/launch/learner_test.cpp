// SPDX-License-Identifier: Apache-2.0
// The Learner: its events, fastai's numbers, and that two ranks train as one.
#include <peal/autograd/core/context.h>
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/threads.h>
#include <peal/launch/training/learner/learner.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/loss.h>
#include <peal/nn/metrics/classification.h>
#include <peal/nn/parallel/ddp.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include "points.h"

#include <cmath>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

using namespace peal;
using testing::Points;

namespace {

struct Net : nn::Module {
  nn::Linear a = add("a", nn::Linear(2, 4)), b = add("b", nn::Linear(4, 4)),
             c = add("c", nn::Linear(4, 3));
  Tensor forward(const Tensor& x) override { return c(relu(b(relu(a(x))))); }
};

struct Program {
  explicit Program(launch::Job& j, std::int64_t count = 8, std::int64_t batch = 4)
      : job(j),
        training(std::make_shared<Points>(count),
                 {.batch_size = batch / j.world(), .shard = j.place(), .seed = 1}),
        validation(std::make_shared<Points>(7),
                   {.batch_size = 2, .shard = j.place(), .exact = true}) {}
  launch::LearnerOptions options() const {
    return {.loss = nn::CrossEntropyLoss{},
            .metrics = {{"accuracy", std::make_shared<nn::Accuracy>()}},
            .groups = {{"a"}, {"b"}, {"c"}}};
  }
  launch::Job& job;
  data::DataLoader training, validation;
  Net net = [] {
    manual_seed(3);
    return Net();
  }();
};

struct Each : launch::Callback {
  explicit Each(std::function<void(launch::Event, launch::Loop&)> g) : f(std::move(g)) {}
  int order() const override { return 70; }
  void on(launch::Event event, launch::Loop& loop) override { f(event, loop); }
  std::function<void(launch::Event, launch::Loop&)> f;
};

void near(const std::vector<double>& got, const std::vector<double>& wanted) {
  REQUIRE(got.size() >= wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i)
    CHECK(got[i] == doctest::Approx(wanted[i]).epsilon(1e-6));
}

}  // namespace

TEST_CASE("events come in fastai's order, and a cancel goes to after_cancel, then after") {
  launch::Job job;
  Program p(job, 4);
  std::string seen;
  launch::Event cancelled = launch::Event::after_fit;
  auto options = p.options();
  options.callbacks = {std::make_shared<Each>([&](launch::Event event, launch::Loop&) {
    seen += std::string(launch::name_of(event)) + ' ';
    if (event != cancelled) return;
    if (event == launch::Event::before_step) throw launch::CancelStepException();
    if (event == launch::Event::before_backward) throw launch::CancelBackwardException();
    if (event == launch::Event::after_pred) throw launch::CancelBatchException();
    if (event == launch::Event::after_backward) throw launch::CancelTrainException();
    if (event == launch::Event::before_validate) throw launch::CancelValidException();
    if (event == launch::Event::before_train) throw launch::CancelEpochException();
    if (event == launch::Event::after_train) throw launch::CancelFitException();
  })};
  data::DataLoader one(std::make_shared<Points>(2), {.batch_size = 2});
  launch::Learner learner(job, {&p.training, &one}, p.net, options);
  learner.fit(1);
  const std::string end = "after_epoch after_fit ";
  const std::string valid =
      "before_validate before_batch after_pred after_loss after_batch after_validate ";
  const std::string loss =
      "before_fit before_epoch before_train before_batch after_pred after_loss before_backward "
      "after_backward before_step ";
  CHECK(seen == loss + "after_step after_batch after_train " + valid + end);
  seen.clear();
  cancelled = launch::Event::before_step;
  learner.fit(1);
  CHECK(seen == loss + "after_cancel_step after_step after_batch after_train " + valid + end);
  seen.clear();
  cancelled = launch::Event::after_pred;
  learner.fit(1);
  CHECK(seen ==
        "before_fit before_epoch before_train before_batch after_pred after_cancel_batch "
        "after_batch after_train before_validate before_batch after_pred after_cancel_batch "
        "after_batch after_validate after_epoch after_fit ");
  seen.clear();
  cancelled = launch::Event::before_train;
  learner.fit(1);
  CHECK(seen == "before_fit before_epoch before_train after_cancel_epoch " + end);
  const auto cancelling = [&](launch::Event at) {
    seen.clear();
    cancelled = at;
    learner.fit(1);
    return seen;
  };
  const std::string step = "before_step after_step after_batch after_train ";
  const std::string backward =
      "before_fit before_epoch before_train before_batch after_pred after_loss before_backward ";
  CHECK(cancelling(launch::Event::before_backward) ==
        backward + "after_cancel_backward after_backward " + step + valid + end);
  CHECK(cancelling(launch::Event::after_backward) ==
        backward + "after_backward after_cancel_train after_train " + valid + end);
  CHECK(cancelling(launch::Event::before_validate) ==
        backward + "after_backward " + step +
            "before_validate after_cancel_validate after_validate " + end);
  CHECK(cancelling(launch::Event::after_train) ==
        backward + "after_backward " + step + "after_cancel_fit after_fit ");
}

TEST_CASE("callbacks come by fastai's orders, and its Adam is the optimizer") {
  launch::Job job;
  Program p(job);
  launch::Learner learner(job, {&p.training}, p.net, p.options());
  CHECK(learner.recorder().order() == 50);
  CHECK(launch::ParamScheduler({}, learner.recorder()).order() == 60);
  learner.fit(1);
  REQUIRE(learner.optimizer->group_count() == 6);  // of each layer group its bias, and the rest
  for (std::size_t g = 0; g < 6; ++g) {
    const auto setting = [&](const char* name) { return learner.optimizer->setting(name, g); };
    CHECK(setting("beta1") == 0.9);
    CHECK(setting("beta2") == 0.99);
    CHECK(setting("eps") == 1e-5);
    CHECK(setting("weight_decay") == (g % 2 == 0 ? 0 : 0.01));
  }
}

TEST_CASE("rates and momenta of the fits are fastai's") {
  const auto cycle = launch::combined_cos(0.25, 1e-3 / 25, 1e-3, 1e-3 / 1e5);
  for (const auto& [at, rate] : {std::pair{0.0, 4e-5},
                                 {0.125, 5.2e-4},
                                 {0.25, 1e-3},
                                 {0.5, 7.500025e-4},
                                 {0.75, 2.500075e-4},
                                 {1.0, 1e-8}}) {
    CHECK(cycle(at) == doctest::Approx(rate).epsilon(1e-6));
  }
  launch::Job job;
  Program p(job, 32);
  launch::Learner learner(job, {&p.training}, p.net, p.options());
  learner.fit_one_cycle(1, 1.0);
  near(learner.recorder().settings["lr"],
       {.04, .52, 1, .93301337, .7500025, .500005, .2500075, .06699663});
  near(learner.recorder().settings["mom"], {.95, .9, .85, .85669873, .875, .9, .925, .94330127});
  const testing::Folder folder;
  learner.fit_one_cycle(1, 1e-3);
  learner.recorder().plot_sched(folder.path / "schedule.svg");
  std::stringstream drawn;
  drawn << std::ifstream(folder.path / "schedule.svg").rdbuf();
  for (const char* seen : {">lr</text>", ">0.0004</text>", ">mom</text>", ">0.9</text>"}) {
    testing::check_has(drawn.str(), seen);  // each has axes of its own
  }
  learner.fit_flat_cos(1, 1.0);
  near(learner.recorder().settings["lr"], {1, 1, 1, 1, 1, 1, 1, .500005});
  learner.fit_sgdr(3, 1, 1.0);
  CHECK(learner.recorder().epochs.size() == 7);
  for (const std::size_t restart : {0, 8, 24}) {
    CHECK(learner.recorder().settings["lr"].at(restart) == doctest::Approx(1));
  }
  CHECK(launch::slice(2e-3).of(3) == std::vector<double>{2e-4, 2e-4, 2e-3});
  near(launch::slice(1e-5, 1e-3).of(3), {1e-5, 1e-4, 1e-3});
  Program five(job, 20);
  launch::Learner tuned(job, {&five.training}, five.net, five.options());
  tuned.fine_tune(2, 2e-3);
  near(tuned.recorder().settings["lr"], {2e-4, 4e-4, 8e-4, 1e-3, 9.504849e-4, 8.117468e-4,
                                         6.112644e-4, 3.887456e-4, 1.882632e-4, 4.95251e-5});
  tuned.freeze();
  CHECK(!five.net.a.weight.requires_grad());
  CHECK(five.net.c.weight.requires_grad());
}

TEST_CASE("the smooth loss, the table and the valley are fastai's") {
  launch::SmoothLoss smooth;
  for (const auto& [loss, mean] : {std::pair{1.0, 1.0}, {2, 1.505050505}, {3, 2.013467555}}) {
    smooth.add(loss);
    CHECK(smooth.value() == doctest::Approx(mean).epsilon(1e-9));
  }
  smooth.reset();
  for (const auto& [loss, mean] :
       {std::pair{4.0, 4.0}, {2, 2.989899}, {1, 2.313155}, {1, 1.974852}}) {
    smooth.add(loss);
    CHECK(smooth.value() == doctest::Approx(mean).epsilon(1e-6));
  }
  CHECK(launch::table_row({"0", "0.5"}, {"epoch", "train_loss"}) == "0         0.5       ");
  CHECK(launch::clock_text(67) == "01:07");
  CHECK(launch::valley({3, 2.9, 2.95, 2.8, 2.6, 2.3, 1.9, 1.5, 1.3, 1.25, 1.4, 2, 4}) == 4);
  CHECK(launch::valley({9, 8, 7, 6, 5, 4, 3, 2, 1}) == 3);
  CHECK_THROWS_AS(launch::valley({1, 2, 3}), Error);
  CHECK_THROWS_AS(launch::valley({1, 1, 1}), Error);
}

TEST_CASE("two ranks train, judge and search rates as one") {
  std::vector<double> losses[3], found[3];
  double judged[3] = {};
  for (const int world : {1, 2}) {
    comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
      launch::Job job(group);
      Program p(job, 32);
      launch::Learner learner(job, {&p.training, &p.validation}, p.net, p.options());
      const Tensor before = p.net.a.weight.clone();
      const auto rates = learner.lr_find();
      CHECK(sum(abs(p.net.a.weight - before)).item<float>() == 0);
      CHECK(p.training.epoch() == 0);
      CHECK(rates.lrs.size() <= 100);
      for (std::size_t i = 0; i < rates.lrs.size(); ++i) {
        const double share = static_cast<double>(i) / 100;
        CHECK(rates.lrs[i] == doctest::Approx(1e-7 * std::pow(1e8, share)).epsilon(1e-9));
      }
      // Of what is left without the first tenth and the last five (fastai: minimum, steep).
      std::size_t least = 10, steepest = 10;
      const auto slope = [&](std::size_t i) {
        return (rates.losses[i + 1] - rates.losses[i]) / std::log(rates.lrs[i + 1] / rates.lrs[i]);
      };
      for (std::size_t i = 10; i + 5 < rates.losses.size(); ++i) {
        if (rates.losses[i] < rates.losses[least]) least = i;
        if (i + 6 < rates.losses.size() && slope(i) < slope(steepest)) steepest = i;
      }
      CHECK(rates.minimum == doctest::Approx(rates.lrs[least] / 10));
      CHECK(rates.steep == doctest::Approx(rates.lrs[steepest]));
      learner.fit_one_cycle(2, 0.05);
      CHECK(learner.model.as<nn::DistributedDataParallel>() == nullptr);
      const double accuracy = learner.validate()[1].value;
      if (!job.is_main()) return;
      losses[world] = learner.recorder().batch_losses;
      found[world] = {rates.valley, rates.minimum, rates.steep};
      judged[world] = accuracy;
    });
  }
  REQUIRE(losses[1].size() == 16);
  near(losses[2], losses[1]);
  near(found[2], found[1]);
  CHECK(losses[1].back() < losses[1].front());
  CHECK(judged[1] == judged[2]);
}

TEST_CASE("what a callback throws on one rank is an error on all") {
  std::string errors[2];
  const auto run = [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    Program p(job);
    auto options = p.options();
    options.callbacks = {std::make_shared<Each>([&](launch::Event event, launch::Loop&) {
      if (job.rank() == 1 && event == launch::Event::before_batch) fail("a callback's own");
    })};
    launch::Learner learner(job, {&p.training}, p.net, options);
    errors[job.rank()] = testing::error_of([&] { learner.fit(1); });
    CHECK(learner.model.as<nn::DistributedDataParallel>() == nullptr);
  };
  CHECK_THROWS_AS(comm::run_ranks(2, run), Error);
  for (const std::string& each : errors) testing::check_has(each, "a callback's own");
}

TEST_CASE("a cancel on one rank alone is an error on all") {
  for (const launch::Event at :
       {launch::Event::before_step, launch::Event::after_pred, launch::Event::after_epoch}) {
    std::string errors[2];
    const auto run = [&](const comm::ProcessGroup& group) {
      launch::Job job(group);
      Program p(job);
      auto options = p.options();
      options.callbacks = {std::make_shared<Each>([&](launch::Event event, launch::Loop&) {
        if (job.rank() == 0 || event != at) return;
        if (at == launch::Event::before_step) throw launch::CancelStepException();
        if (at == launch::Event::after_pred) throw launch::CancelBatchException();
        throw launch::CancelFitException();
      })};
      launch::Learner learner(job, {&p.training}, p.net, options);
      errors[job.rank()] = testing::error_of([&] { learner.fit(1); });
    };
    CHECK_THROWS_AS(comm::run_ranks(2, run), Error);
    for (const std::string& each : errors) CHECK(each != "nothing");
  }
}

TEST_CASE("a cancel on all ranks, or on one in a batch of the validation, is none") {
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    Program p(job);
    auto options = p.options();
    options.callbacks = {std::make_shared<Each>([&](launch::Event event, launch::Loop& loop) {
      if (event == launch::Event::before_step) throw launch::CancelStepException();
      if (event != launch::Event::after_pred || loop.training) return;
      if (job.rank() == 1 && loop.iter == 0) throw launch::CancelBatchException();
    })};
    launch::Learner learner(job, {&p.training, &p.validation}, p.net, options);
    const Tensor before = p.net.a.weight.clone();
    learner.fit(1);
    CHECK(sum(abs(p.net.a.weight - before)).item<float>() == 0);
    CHECK(learner.recorder().epochs.size() == 1);
  });
}

TEST_CASE("loaders that are not each rank's share are errors on all ranks, which go on") {
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    Program p(job);
    const auto points = std::make_shared<Points>(7);
    data::DataLoader padded(points, {.batch_size = 2, .shard = job.place()});
    data::DataLoader uneven(points, {.batch_size = 1, .shard = job.place(), .exact = true});
    data::DataLoader other(points, {.batch_size = 1, .shard = Place{0, 2}});
    const auto error = [&](data::DataLoader& training, data::DataLoader& validation) {
      launch::Learner learner(job, {&training, &validation}, p.net, p.options());
      return testing::error_of([&] { learner.fit(1); });
    };
    testing::check_has(error(p.training, padded), ".exact = true");
    testing::check_has(error(uneven, p.validation), "leave out .exact");
    testing::check_has(error(other, p.validation), "rank 1 of 2");
    launch::Learner learner(job, {&p.training, &p.validation}, p.net, p.options());
    learner.fit(1);
  });
}

TEST_CASE("what a callback throws on one rank in a validation alone is an error on all") {
  std::string errors[2];
  const auto run = [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    Program p(job);
    auto options = p.options();
    options.callbacks = {std::make_shared<Each>([&](launch::Event event, launch::Loop&) {
      if (job.rank() == 1 && event == launch::Event::before_batch) fail("a callback's own");
    })};
    launch::Learner learner(job, {&p.training, &p.validation}, p.net, options);
    errors[job.rank()] = testing::error_of([&] { learner.validate(); });
  };
  CHECK_THROWS_AS(comm::run_ranks(2, run), Error);
  for (const std::string& each : errors) testing::check_has(each, "a callback's own");
}
