// SPDX-License-Identifier: Apache-2.0
// The Learner's callbacks, its context for several ranks and its plots.
#include <peal/autograd/core/context.h>
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/threads.h>
#include <peal/launch/training/learner/callbacks.h>
#include <peal/launch/training/learner/learner.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/loss.h>
#include <peal/nn/optim/rprop.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/ddp.h>
#include <peal/nn/parallel/sync_batch_norm.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include "points.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

using namespace peal;
using testing::Points;

namespace {

struct Normed : nn::Module {
  nn::Linear a = add("a", nn::Linear(2, 4)), b = add("b", nn::Linear(4, 3));
  nn::BatchNorm1d norm = add("norm", nn::BatchNorm1d(4));
  Tensor forward(const Tensor& x) override { return b(norm(a(x))); }
};

// In a fit, of several ranks.
struct IsWrapped : launch::Callback {
  void before_fit(launch::Loop& loop) override {
    CHECK(loop.model.as<nn::DistributedDataParallel>() != nullptr);
  }
};

// One epoch of plain SGD over ten points; the weight afterwards.
std::vector<float> trained(launch::Job& job, std::int64_t batch, std::int64_t n_acc) {
  manual_seed(3);
  nn::Linear net(2, 3);
  data::DataLoader training(std::make_shared<Points>(20),
                            {.batch_size = batch, .shard = job.place(), .seed = 1});
  std::vector<std::shared_ptr<launch::Callback>> more;
  if (n_acc > 0) more.push_back(std::make_shared<launch::GradientAccumulation>(n_acc));
  launch::Learner learner(job, {&training}, net,
                          {.loss = nn::CrossEntropyLoss{},
                           .optimizer = launch::optimizer_of<nn::SGD>(nn::SGDOptions{}),
                           .callbacks = more});
  learner.fit(1, 0.5);
  return net.weight.detach().to_vector<float>();
}

}  // namespace

TEST_CASE("accumulated batches of any sizes train as one, on one rank and on two") {
  std::vector<float> whole;
  {
    launch::Job job;
    whole = trained(job, 8, 0);  // 8, 8 and 4 samples
    const auto parts = trained(job, 3, 20);
    const auto all = trained(job, 20, 0);
    for (std::size_t i = 0; i < all.size(); ++i)
      CHECK(parts[i] == doctest::Approx(all[i]).epsilon(1e-5));
  }
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    const auto parts = trained(job, 2, 4);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      CHECK(parts[i] == doctest::Approx(whole[i]).epsilon(1e-5));
    }
  });
}

TEST_CASE("where the backward that ends a step is cancelled, its gradients go into the next step") {
  struct Cancel : launch::Callback {
    void before_backward(launch::Loop& loop) override {
      if (loop.iter == 1) throw launch::CancelBackwardException();
    }
    int order() const override { return 20; }
    void after_step(launch::Loop& loop) override {
      steps += loop.iter == 3 ? 1 : loop.iter == 2 ? 10 : 100;
    }
    int steps = 0;
  };
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    manual_seed(3);
    nn::Linear net(2, 3);
    data::DataLoader training(std::make_shared<Points>(16), {.batch_size = 2});
    const auto cancel = std::make_shared<Cancel>();
    launch::Learner learner(
        job, {&training}, net,
        {.loss = nn::CrossEntropyLoss{},
         .callbacks = {std::make_shared<launch::GradientAccumulation>(4), cancel}});
    learner.fit(1);
    CHECK(cancel->steps == 11);  // after the third and the fourth batch
    const auto weights = net.weight.detach().to_vector<float>();
    const auto all = group.all_gather_object(concat(weights[0], " ", weights[5]));
    CHECK(all[0] == all[1]);
  });
}

TEST_CASE("a training without gain stops, and the best model comes back, on all ranks") {
  const testing::Folder folder;
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    manual_seed(3);
    nn::Linear net(2, 3);
    data::DataLoader training(std::make_shared<Points>(8), {.batch_size = 2, .shard = job.place()});
    data::DataLoader validation(std::make_shared<Points>(7),
                                {.batch_size = 2, .shard = job.place(), .exact = true});
    launch::Learner learner(
        job, {&training, &validation}, net,
        {.loss = nn::CrossEntropyLoss{},
         .optimizer = launch::optimizer_of<nn::SGD>(nn::SGDOptions{}),
         .callbacks = {std::make_shared<launch::SaveModelCallback>(folder.path / "best"),
                       std::make_shared<launch::GradientClip>(1000.0),
                       std::make_shared<launch::EarlyStoppingCallback>("valid_loss", 0, 2)}});
    learner.fit(9, 500.0);  // it runs away
    const auto& epochs = learner.recorder().epochs;
    REQUIRE(epochs.size() < 9);
    double best = epochs[0][1].value;
    for (const auto& each : epochs) best = std::min(best, each[1].value);
    CHECK(learner.validate()[0].value == doctest::Approx(best).epsilon(1e-6));
    if (job.is_main()) {
      learner.recorder().plot_loss(folder.path / "loss.svg");
      const std::string picture = testing::content_of(folder.path / "loss.svg");
      for (const char* part : {"<svg", "Loss", "batch", "train", "valid", "</svg>"}) {
        testing::check_has(picture, part);
      }
    }
  });
}

TEST_CASE("a validation that another callback cancels leaves no numbers of the one before") {
  struct Cancel : launch::Callback {
    void before_validate(launch::Loop& loop) override {
      if (loop.epoch == 1) throw launch::CancelValidException();
    }
  };
  launch::Job job;
  manual_seed(3);
  nn::Linear net(2, 3);
  data::DataLoader training(std::make_shared<Points>(8), {.batch_size = 4}),
      validation(std::make_shared<Points>(7), {.batch_size = 4});
  launch::Learner learner(
      job, {&training, &validation}, net,
      {.loss = nn::CrossEntropyLoss{}, .callbacks = {std::make_shared<Cancel>()}});
  learner.fit(2);
  const auto& epochs = learner.recorder().epochs;
  REQUIRE(epochs.size() == 2);
  CHECK(epochs[0].size() == 2);
  CHECK(epochs[1].size() == 1);  // train_loss
}

TEST_CASE("a search for rates leaves the scale of losses as it was") {
  launch::Job job;
  manual_seed(3);
  nn::Linear net(2, 3);
  data::DataLoader training(std::make_shared<Points>(32), {.batch_size = 4});
  launch::Learner learner(job, {&training}, net,
                          {.loss = [](const Tensor& output, const Tensor& y) {
                            return nn::CrossEntropyLoss{}(output, y) * 1e6;  // f16 overflows
                          }});
  learner.to_fp16();
  const double before = learner.accelerator().scaler().get_scale();
  double lowest = before;
  struct Watch : launch::Callback {
    explicit Watch(double& l) : lowest(l) {}
    void after_step(launch::Loop& loop) override {
      lowest = std::min(lowest, loop.accelerator().scaler().get_scale());
    }
    double& lowest;
  };
  learner.callbacks.push_back(std::make_shared<Watch>(lowest));
  try {
    learner.lr_find(1e-7, 10, 20);
  } catch (const Error&) {  // no loss fell
  }
  CHECK(lowest < before);
  CHECK(learner.accelerator().scaler().get_scale() == before);
}

TEST_CASE("to_bf16 computes in bf16, of parameters that stay f32") {
  struct Typed : nn::Module {
    nn::Linear layer = add("layer", nn::Linear(2, 3));
    std::shared_ptr<DType> seen = std::make_shared<DType>(DType::f32);
    Tensor forward(const Tensor& x) override {
      const Tensor y = layer(x);
      *seen = y.dtype();
      return y;
    }
  };
  launch::Job job;
  manual_seed(3);
  Typed net;
  data::DataLoader training(std::make_shared<Points>(8), {.batch_size = 4});
  launch::Learner learner(job, {&training}, net, {.loss = nn::CrossEntropyLoss{}});
  learner.to_bf16().fit(1);
  CHECK(*net.seen == DType::bf16);
  for (const Tensor& each : net.parameters()) CHECK(each.dtype() == DType::f32);
}

TEST_CASE("what a callback throws on one rank the others hear, who wait for it, whatever it is") {
  struct Throws : launch::Callback {
    void after_loss(launch::Loop& loop) override {
      if (loop.job.rank() == 1) throw 42;
    }
  };
  std::vector<std::string> told(2);
  std::barrier all(2);  // none leaves before both have failed, so none hears it by that
  const auto rank = [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    manual_seed(3);
    data::DataLoader training(std::make_shared<Points>(8), {.batch_size = 2, .shard = job.place()});
    launch::Learner learner(job, {&training}, nn::Linear(2, 3), {.loss = nn::CrossEntropyLoss{}});
    learner.callbacks.push_back(std::make_shared<Throws>());
    std::string& mine = told[static_cast<std::size_t>(job.rank())];
    try {
      learner.fit(1);
    } catch (const Error& error) {
      mine = error.what();
    } catch (int number) {
      mine = std::to_string(number);
    }
    all.arrive_and_wait();
  };
  try {
    comm::run_ranks(2, {.deadline = std::chrono::seconds(10)}, rank);
  } catch (const Error&) {  // the same once more, of the group
  }
  CHECK(told[1] == "42");
  testing::check_has(told[0], "[launch] learner: rank 1: an exception that is no std::exception");
}

TEST_CASE("distrib_ctx wraps, and puts back what was there, also after an exception") {
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    manual_seed(3);
    Normed net;
    data::DataLoader training(std::make_shared<Points>(8), {.batch_size = 2, .shard = job.place()});
    launch::Learner learner(job, {&training}, net, {.loss = nn::CrossEntropyLoss{}});
    const auto is_sync = [&] {
      nn::Module norm = net.get_submodule("norm");
      return norm.as<nn::SyncBatchNorm>() != nullptr;
    };
    try {
      const auto context = learner.distrib_ctx();
      CHECK(is_sync());
      CHECK(learner.distrib_ctx() == nullptr);
      learner.callbacks.push_back(std::make_shared<IsWrapped>());
      learner.fit(1);
      fail("anything");
    } catch (const Error&) {
    }
    CHECK(!is_sync());
    CHECK(learner.model.as<nn::DistributedDataParallel>() == nullptr);
    CHECK(net.norm.num_batches_tracked.item<std::int64_t>() == 2);
    learner.fit(1);
  });
  launch::Job alone;
  Normed net;
  data::DataLoader training(std::make_shared<Points>(8), {.batch_size = 2});
  launch::Learner learner(alone, {&training}, net, {.loss = nn::CrossEntropyLoss{}});
  CHECK(learner.distrib_ctx() == nullptr);
}

TEST_CASE("a norm of two places is a plain one again in both") {
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    const nn::BatchNorm1d norm(2);
    nn::Sequential net{norm, nn::Linear(2, 2), norm};
    data::DataLoader training(std::make_shared<Points>(8), {.batch_size = 2, .shard = job.place()});
    launch::Learner learner(job, {&training}, net, {.loss = nn::CrossEntropyLoss{}});
    const auto are_sync = [&] {
      nn::Module first = net.get_submodule("0"), last = net.get_submodule("2");
      return (first.as<nn::SyncBatchNorm>() != nullptr) + (last.as<nn::SyncBatchNorm>() != nullptr);
    };
    {
      const auto context = learner.distrib_ctx();
      CHECK(are_sync() == 2);
    }
    CHECK(are_sync() == 0);
  });
}

TEST_CASE("rates fall where nothing gets better, and a loss that is no number ends a fit for all") {
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    manual_seed(3);
    nn::Linear net(2, 3);
    data::DataLoader training(std::make_shared<Points>(8), {.batch_size = 2, .shard = job.place()});
    data::DataLoader validation(std::make_shared<Points>(7),
                                {.batch_size = 2, .shard = job.place(), .exact = true});
    launch::Learner learner(job, {&training, &validation}, net,
                            {.loss = nn::CrossEntropyLoss{},
                             .optimizer = launch::optimizer_of<nn::SGD>(nn::SGDOptions{})});
    // Nothing is better by 100: after the first epoch each one is an epoch without a gain.
    learner.fit(
        6, 1e-3,
        {.cbs = {std::make_shared<launch::ReduceLROnPlateau>("valid_loss", 100, 2, 10, 2e-5)}});
    CHECK(learner.recorder().lrs.front() == doctest::Approx(1e-3));
    CHECK(learner.recorder().lrs.at(5) == doctest::Approx(1e-3));  // two batches an epoch
    CHECK(learner.recorder().lrs.at(6) == doctest::Approx(1e-4));
    CHECK(learner.optimizer->lr() == doctest::Approx(2e-5));
    learner.fit(1, 1e-3);  // the callback is gone, and the rate is what was asked for
    CHECK(learner.optimizer->lr() == doctest::Approx(1e-3));
    struct NaN : launch::Callback {  // on one rank, in the second batch
      void after_loss(launch::Loop& loop) override {
        if (loop.training && loop.iter == 1 && loop.job.rank() == 1) loop.loss = loop.loss * NAN;
      }
    };
    const std::int64_t before = std::ssize(learner.recorder().batch_losses);
    learner.fit(
        3, 1e-3,
        {.cbs = {std::make_shared<NaN>(), std::make_shared<launch::TerminateOnNaNCallback>()}});
    CHECK(before == 2);
    CHECK(learner.recorder().epochs.empty());
    for (const float each : net.weight.detach().to_vector<float>()) CHECK(std::isfinite(each));
  });
}

TEST_CASE("a fit has weight decay and an optimizer of its own where it asks for them") {
  launch::Job job;
  manual_seed(3);
  nn::Sequential net(nn::Linear(2, 4), nn::GroupNorm(2, 4), nn::Linear(4, 3));
  data::DataLoader training(std::make_shared<Points>(8), {.batch_size = 4});
  launch::Learner learner(job, {&training}, net, {.loss = nn::CrossEntropyLoss{}, .wd = 0.3});
  const auto decays = [&] {
    std::vector<double> all;
    for (std::size_t g = 0; g < learner.optimizer->group_count(); ++g) {
      all.push_back(learner.optimizer->setting("weight_decay", g));
      CHECK(std::ssize(learner.optimizer->parameters()) == 6);
    }
    return all;
  };
  learner.fit(1);
  CHECK(decays() == std::vector<double>{0, 0.3});  // of biases and the norm; of two weights
  const auto* const made = learner.optimizer.get();
  learner.fit_one_cycle(1, 1e-3, {.wd = 0.2});
  CHECK(decays() == std::vector<double>{0, 0.2});
  learner.fit_flat_cos(1, 1e-3);
  CHECK(decays() == std::vector<double>{0, 0.2});
  CHECK(learner.optimizer.get() == made);
  learner.fit(1, 1e-3, {.reset_opt = true});
  CHECK(decays() == std::vector<double>{0, 0.3});
  launch::Learner without(job, {&training}, net,
                          {.loss = nn::CrossEntropyLoss{},
                           .optimizer = launch::optimizer_of<nn::Rprop>(nn::RpropOptions{})});
  without.fit(1);
  testing::check_has(testing::error_of([&] { without.fit(1, 1e-3, {.wd = 0.2}); }),
                     "the optimizer has no weight_decay");
  // Any norm is one: it decays with nobody, and learns where others are frozen.
  launch::Learner frozen(job, {&training}, net,
                         {.loss = nn::CrossEntropyLoss{}, .groups = {{"0", "1"}, {"2"}}});
  frozen.freeze();
  CHECK(!net.get_parameter("0.weight").requires_grad());
  CHECK(net.get_parameter("1.weight").requires_grad());
}

TEST_CASE("a fit begins with the order of gradients that the last one has learnt") {
  struct Orders : launch::Callback {  // before the second step, which else would learn it
    void before_batch(launch::Loop& loop) override {
      if (loop.iter == 1) seen.push_back(loop.prepared_model()->ddp()->order());
    }
    std::vector<std::vector<std::string>> seen;
  };
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    manual_seed(3);
    nn::Sequential net(nn::Linear(2, 4), nn::Linear(4, 3));
    data::DataLoader training(std::make_shared<Points>(8), {.batch_size = 2, .shard = job.place()});
    const auto orders = std::make_shared<Orders>();
    launch::Learner learner(
        job, {&training}, net,
        {.loss = nn::CrossEntropyLoss{}, .callbacks = {orders}, .groups = {{"0"}, {"1"}}});
    learner.fit(1);
    learner.fit(1);
    learner.freeze();  // others learn: the order is another one
    learner.fit(1);
    learner.unfreeze();
    learner.fit(1);
    REQUIRE(orders->seen.size() == 4);
    CHECK(orders->seen[0].empty());
    CHECK(orders->seen[1].size() == 4);
    CHECK(orders->seen[2].empty());
    CHECK(orders->seen[3].empty());
  });
}
