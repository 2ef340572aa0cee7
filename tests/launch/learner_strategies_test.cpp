// SPDX-License-Identifier: Apache-2.0
// What the Learner does with each strategy, on one to three ranks, is what it does on one.
#include <peal/autograd/core/context.h>
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/threads.h>
#include <peal/launch/training/learner/callbacks.h>
#include <peal/launch/training/learner/learner.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/loss.h>
#include <peal/nn/metrics/classification.h>
#include <peal/nn/optim/adam.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include "points.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

using namespace peal;
using testing::Points;

namespace {

const std::vector<std::string> strategies{"ddp", "zero1", "zero2", "fsdp"};

struct Wide : Points {
  using Points::Points;
  data::Batch get(std::span<const std::int64_t> indices) const override {
    data::Batch batch = Points::get(indices);
    batch.x = cast(batch.x, DType::f64);
    return batch;
  }
};

struct Net : nn::Module {
  nn::Linear a = add("a", nn::Linear(2, 4)), b = add("b", nn::Linear(4, 4)),
             c = add("c", nn::Linear(4, 3));
  Tensor forward(const Tensor& x) override { return c(relu(b(relu(a(x))))); }
};

// Whole loaders: 24 samples in batches of 6 of all ranks, and 7 to validate with.
struct Program {
  explicit Program(launch::Job& j)
      : job(j),
        training(std::make_shared<Wide>(24),
                 {.batch_size = 6 / j.world(), .shuffle = true, .seed = 1}),
        validation(std::make_shared<Wide>(7), {.batch_size = 2}) {}
  launch::LearnerOptions options(const std::string& strategy) const {
    return {.loss = nn::CrossEntropyLoss{},
            .metrics = {{"accuracy", std::make_shared<nn::Accuracy>()}},
            .groups = {{"a"}, {"b"}, {"c"}},
            .strategy = strategy};
  }
  launch::Job& job;
  data::DataLoader training, validation;
  Net net = [] {
    manual_seed(3);
    Net made;
    made.to(DType::f64);
    return made;
  }();
};

std::vector<double> numbers_of(const nn::Module& net) {
  std::vector<double> all;
  for (const auto& [name, tensor] : net.state_dict()) {
    const auto more = cast(tensor, DType::f64).to_vector<double>();
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

void near(const std::vector<double>& got, const std::vector<double>& wanted) {
  REQUIRE(got.size() == wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    CHECK(got[i] == doctest::Approx(wanted[i]).epsilon(1e-10).scale(1));
  }
}

// f of every strategy and world finds what it finds on one rank.
void is_alike(const std::function<std::vector<double>(launch::Job&, const std::string&)>& f) {
  launch::Job alone;
  const std::vector<double> wanted = f(alone, "none");
  for (const int world : {1, 2, 3}) {
    for (const std::string& strategy : strategies) {
      CAPTURE(world);
      CAPTURE(strategy);
      comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
        launch::Job job(group);
        near(f(job, strategy), wanted);
      });
    }
  }
}

struct Each : launch::Callback {
  explicit Each(std::function<void(launch::Event, launch::Loop&)> g) : f(std::move(g)) {}
  int order() const override { return 70; }
  void on(launch::Event event, launch::Loop& loop) override { f(event, loop); }
  std::function<void(launch::Event, launch::Loop&)> f;
};

}  // namespace

TEST_CASE("a search for rates, a fit with the best model, and a validation") {
  const testing::Folder folder;
  is_alike([&](launch::Job& job, const std::string& strategy) {
    Program p(job);
    launch::Learner learner(job, {&p.training, &p.validation}, p.net, p.options(strategy));
    const auto best =
        std::make_shared<launch::SaveModelCallback>(folder.path / ("best " + strategy));
    const auto before = numbers_of(p.net);
    const auto rates = learner.lr_find(1e-4, 10, 30);
    near(numbers_of(p.net), before);
    CHECK(learner.optimizer == nullptr);
    learner.callbacks.push_back(best);
    learner.callbacks.push_back(std::make_shared<launch::GradientClip>(0.7));
    learner.callbacks.push_back(
        std::make_shared<launch::EarlyStoppingCallback>("valid_loss", 0, 2));
    learner.fit_one_cycle(5, 0.3);
    std::vector<double> all = numbers_of(p.net);
    all.push_back(rates.valley);
    all.push_back(best->best());
    for (const auto& values : {learner.recorder().epochs.back(), learner.validate()}) {
      for (const launch::Value& each : values) all.push_back(each.value);
    }
    const auto& losses = learner.recorder().losses;
    all.insert(all.end(), losses.begin(), losses.end());
    return all;
  });
}

TEST_CASE("fits of a part of the model, and then of all of it") {
  is_alike([&](launch::Job& job, const std::string& strategy) {
    Program p(job);
    launch::Learner learner(job, {&p.training}, p.net, p.options(strategy));
    const auto context = learner.distrib_ctx();
    learner.fine_tune(2, 0.1);
    learner.fit_flat_cos(1, 0.02);
    std::vector<double> all = numbers_of(p.net);
    for (const auto& [key, tensor] : learner.optimizer->state_dict()) {
      const auto more = cast(tensor, DType::f64).to_vector<double>();
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  });
}

TEST_CASE("a cancel on one rank alone is an error on all, and so is what a callback throws") {
  for (const std::string& strategy : strategies) {
    CAPTURE(strategy);
    for (const launch::Event at : {launch::Event::before_step, launch::Event::after_pred,
                                   launch::Event::after_epoch, launch::Event::after_loss}) {
      std::string errors[2];
      const auto run = [&](const comm::ProcessGroup& group) {
        launch::Job job(group);
        Program p(job);
        auto options = p.options(strategy);
        options.callbacks = {std::make_shared<Each>([&](launch::Event event, launch::Loop&) {
          if (job.rank() == 0 || event != at) return;
          if (at == launch::Event::before_step) throw launch::CancelStepException();
          if (at == launch::Event::after_pred) throw launch::CancelBatchException();
          if (at == launch::Event::after_loss) fail("a callback's own");
          throw launch::CancelFitException();
        })};
        launch::Learner learner(job, {&p.training, &p.validation}, p.net, options);
        errors[job.rank()] = testing::error_of([&] { learner.fit(1); });
        CHECK(learner.prepared_model() == nullptr);
        // What is left of the model says so, or is there.
        const std::string read = testing::error_of([&] { numbers_of(p.net); });
        if (strategy == "fsdp") {
          testing::check_has(read, "sharded, and not gathered here");
        } else {
          CHECK(read == "nothing");
        }
      };
      CHECK_THROWS_AS(comm::run_ranks(2, run), Error);
      for (const std::string& each : errors) CHECK(each != "nothing");
      if (at != launch::Event::after_loss) continue;
      for (const std::string& each : errors) testing::check_has(each, "a callback's own");
    }
  }
}

TEST_CASE("what a cancel has left of a step counts no longer in the next run") {
  is_alike([&](launch::Job& job, const std::string& strategy) {
    Program p(job);
    launch::Loop loop(job, {.device = "", .strategy = strategy});
    loop.model = p.net;
    loop.optimizer = std::make_shared<nn::AdamW>(p.net.named_parameters());
    loop.loss_function = nn::CrossEntropyLoss{};
    loop.training_loader = &p.training;
    bool cancels = true;
    loop.callbacks = {std::make_shared<launch::GradientAccumulation>(12 / job.world()),
                      std::make_shared<Each>([&](launch::Event event, launch::Loop& here) {
                        if (!cancels || event != launch::Event::after_backward) return;
                        CHECK(!here.sync_gradients);
                        throw launch::CancelFitException();
                      })};
    loop.prepare();
    loop.run(1);
    cancels = false;
    loop.run(1);
    loop.release();
    return numbers_of(p.net);
  });
}

TEST_CASE("models that differ are an error on all ranks, each time") {
  for (const std::string& strategy : strategies) {
    comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
      launch::Job job(group);
      nn::Linear net(2, 3 + job.rank());
      data::DataLoader training(std::make_shared<Points>(8), {.batch_size = 2});
      launch::Learner learner(job, {&training}, net,
                              {.loss = nn::CrossEntropyLoss{}, .strategy = strategy});
      const std::string first = testing::error_of([&] { learner.fit(1); });
      testing::check_has(first, "f32 [");
      CHECK(testing::error_of([&] { learner.fit(1); }) == first);
    });
  }
}

TEST_CASE("a rank may cancel a batch of the validation alone") {
  for (const std::string& strategy : strategies) {
    comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
      launch::Job job(group);
      Program p(job);
      auto options = p.options(strategy);
      options.callbacks = {std::make_shared<Each>([&](launch::Event event, launch::Loop& loop) {
        if (loop.training || event != launch::Event::before_batch) return;
        if (job.rank() == 1 && loop.iter == 0) throw launch::CancelBatchException();
      })};
      launch::Learner learner(job, {&p.training, &p.validation}, p.net, options);
      learner.fit(2);
      CHECK(learner.recorder().epochs.size() == 2);
    });
  }
}

TEST_CASE("ranks drop out different units, also after a search for rates; a fit goes on") {
  struct Noisy : nn::Module {
    nn::Linear a = add("a", nn::Linear(2, 3));
    nn::Dropout drop = add("drop", nn::Dropout(0.5));
    Tensor forward(const Tensor& x) override { return a(x) + drop(ones({64}).view({1, 64})).sum(); }
  };
  for (const std::string& strategy : strategies) {
    for (const bool searches : {false, true}) {
      comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
        launch::Job job(group);
        manual_seed(3);
        Noisy net;
        data::DataLoader training(std::make_shared<Points>(8), {.batch_size = 2});
        std::string seen;
        launch::LearnerOptions options{.loss = nn::CrossEntropyLoss{}, .strategy = strategy};
        options.callbacks = {std::make_shared<Each>([&](launch::Event event, launch::Loop& loop) {
          if (event == launch::Event::after_pred) {
            const Tensor noise = net.drop(ones({64}));
            seen += concat(noise.sum().item<float>(), " ", noise[0].item<float>(), " ");
          }
          static_cast<void>(loop);
        })};
        launch::Learner learner(job, {&training}, net, options);
        if (searches) {
          try {
            learner.lr_find(1e-7, 10, 10);
          } catch (const Error&) {  // no loss fell
          }
        }
        seen.clear();
        learner.fit(1);
        const auto all = group.all_gather_object(seen);
        CHECK(all[0] != all[1]);
      });
    }
  }
}

TEST_CASE("a scale that is too large is all ranks', and steps are left out alike") {
  for (const std::string& strategy : strategies) {
    CAPTURE(strategy);
    comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
      launch::Job job(group);
      manual_seed(3);
      nn::Linear net(2, 3);
      data::DataLoader training(std::make_shared<Points>(32), {.batch_size = 2});
      launch::Learner learner(job, {&training}, net,
                              {.loss =
                                   [&](const Tensor& output, const Tensor& y) {
                                     const double factor = job.rank() == 1 ? 1e6 : 1;
                                     return nn::CrossEntropyLoss{}(output, y) * factor;
                                   },
                               .strategy = strategy});
      learner.to_fp16();
      learner.fit(1, 1e-3);
      CHECK(learner.accelerator().scaler().get_scale() < 65536);
      const auto all = group.all_gather_object(
          concat(learner.accelerator().scaler().get_scale(), " ", numbers_of(net)[0]));
      CHECK(all[0] == all[1]);
    });
  }
}

TEST_CASE("a validation is of the loader it is given, also where another one was in its place") {
  is_alike([](launch::Job& job, const std::string& strategy) {
    Program p(job);
    launch::Learner learner(job, {&p.training}, p.net, p.options(strategy));
    std::vector<double> all;
    std::optional<data::DataLoader> set;  // always at the same address
    for (const std::int64_t size : {7, 12}) {
      set.emplace(std::make_shared<Wide>(size), data::LoaderOptions{.batch_size = 2});
      all.push_back(learner.validate(&*set)[0].value);
    }
    CHECK(all[0] != all[1]);
    return all;
  });
}

TEST_CASE("the epoch of a whole loader is that of its parts") {
  is_alike([](launch::Job& job, const std::string& strategy) {
    Program p(job);
    launch::Learner learner(job, {&p.training}, p.net, p.options(strategy));
    learner.fit(1, 0.1);
    p.training.set_epoch(5);
    learner.training_loader = &p.training;
    learner.fit(1, 0.1);
    CHECK(learner.training_loader->epoch() == 6);
    return numbers_of(p.net);
  });
}

TEST_CASE("with split_batches a batch of a whole loader is all ranks'") {
  is_alike([](launch::Job& job, const std::string& strategy) {
    Program p(job);
    data::DataLoader training(std::make_shared<Wide>(24),
                              {.batch_size = 6, .shuffle = true, .seed = 1});
    launch::Learner learner(job, {&training}, p.net, p.options(strategy));
    launch::AcceleratorOptions options = learner.accelerator_options();
    options.split_batches = true;
    learner.accelerate(options);
    learner.fit(2, 0.1);
    CHECK(learner.train_iter == 8);
    options.even_batches = false;
    testing::check_has(testing::error_of([&] { learner.accelerate(options); }),
                       "even_batches = false");
    return numbers_of(p.net);
  });
}

TEST_CASE("after a fit all ranks have the same buffers, also where the last batch was cancelled") {
  struct WithNorm : nn::Module {
    nn::Linear a = add("a", nn::Linear(2, 3));
    nn::BatchNorm1d norm = add("norm", nn::BatchNorm1d(3));
    Tensor forward(const Tensor& x) override { return norm(a(x)); }
  };
  for (const std::string& strategy : strategies) {
    CAPTURE(strategy);
    comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
      launch::Job job(group);
      manual_seed(3);
      WithNorm net;
      data::DataLoader training(std::make_shared<Points>(24), {.batch_size = 4});
      launch::LearnerOptions options{.loss = nn::CrossEntropyLoss{}, .strategy = strategy};
      options.callbacks = {std::make_shared<Each>([](launch::Event event, launch::Loop& loop) {
        if (event != launch::Event::after_pred || loop.iter + 1 < loop.iters) return;
        throw launch::CancelBatchException();
      })};
      launch::Learner learner(job, {&training}, net, options);
      learner.fit(1);
      std::string mine;
      for (const double each : numbers_of(net)) mine += concat(each, " ");
      const auto all = group.all_gather_object(mine);
      CHECK(all[0] == all[1]);
    });
  }
}
