// SPDX-License-Identifier: Apache-2.0
// The Learner's callbacks, its context for several ranks and its plots.
#include <peal/autograd/core/context.h>
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/threads.h>
#include <peal/launch/training/learner/callbacks.h>
#include <peal/launch/training/learner/learner.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/loss.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/ddp.h>
#include <peal/nn/parallel/sync_batch_norm.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include "points.h"

#include <algorithm>
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
