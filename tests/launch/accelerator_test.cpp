// SPDX-License-Identifier: Apache-2.0
// The Accelerator: P ranks train as one, with every strategy and however many batches make a step;
// who steps when; and what is refused.
#include "accelerator_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

struct Run {
  std::string strategy = "ddp";
  std::int64_t n = 48, batch = 8, steps = 1;
  int epochs = 3;
  bool split = false, clip = false, adam = false;
};

// The loop of accelerator.h. What the model is in the end.
Numbers train(launch::Job& job, const Run& run) {
  launch::Accelerator accelerator(job, {.gradient_accumulation_steps = run.steps,
                                        .strategy = run.strategy,
                                        .split_batches = run.split});
  Regression net;
  nn::SGD sgd(net.parameters(), {.lr = 0.05, .momentum = 0.9});
  nn::AdamW adamw(net.named_parameters(), {.lr = 0.01});
  nn::Optimizer& chosen = run.adam ? static_cast<nn::Optimizer&>(adamw) : sgd;
  data::DataLoader loader(line(run.n), {.batch_size = run.batch, .shuffle = true, .seed = 3});
  auto [training, model, optimizer] = accelerator.prepare(loader, net, chosen);
  for (int epoch = 0; epoch < run.epochs; ++epoch) {
    for (const data::Batch& batch : training) {
      const auto turn = accelerator.accumulate(model);
      accelerator.backward(squared(model(batch.x), batch.y));
      if (run.clip && accelerator.sync_gradients()) {
        accelerator.clip_grad_norm_(model.parameters(), 0.3);
      }
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  return values_of(model);
}

// A plain loop.
Numbers alone(const Run& run, std::int64_t batch_of_all) {
  Regression net;
  nn::SGD sgd(net.parameters(), {.lr = 0.05, .momentum = 0.9});
  nn::AdamW adamw(net.named_parameters(), {.lr = 0.01});
  nn::Optimizer& optimizer = run.adam ? static_cast<nn::Optimizer&>(adamw) : sgd;
  data::DataLoader loader(line(run.n), {.batch_size = batch_of_all, .shuffle = true, .seed = 3});
  for (int epoch = 0; epoch < run.epochs; ++epoch) {
    for (const data::Batch& batch : loader) {
      optimizer.zero_grad();
      squared(net(batch.x), batch.y).backward();
      if (run.clip) nn::clip_grad_norm_(net.parameters(), 0.3);
      optimizer.step();
    }
  }
  return values_of(net);
}

void check_as_one(int world, const Run& run) {
  const Numbers expected = alone(run, run.split ? run.batch : run.batch * run.steps * world);
  for (const Numbers& found : on_ranks(world, [&](launch::Job& job) { return train(job, run); })) {
    CAPTURE(world);
    CAPTURE(run.strategy);
    CAPTURE(run.steps);
    CAPTURE(run.batch);
    CHECK(farthest(expected, found) < 1e-10);
  }
}

}  // namespace

TEST_CASE("P ranks of batch 8 train as one of 8 P, with and without split_batches") {
  for (const int world : {1, 2, 3}) {
    check_as_one(world, {});
    check_as_one(world, {.clip = true, .adam = true});
    check_as_one(world, {.batch = 8 * world, .split = true});
  }
}

TEST_CASE("ranks, batches a step and batch size are the same step, if their product is") {
  for (const auto& [world, steps, batch] :
       std::vector<std::array<int, 3>>{{1, 1, 8}, {1, 4, 2}, {2, 2, 2}, {4, 2, 1}}) {
    check_as_one(world, {.batch = batch, .steps = steps});
  }
}

TEST_CASE("every strategy trains as one rank does") {
  for (const char* strategy : {"zero1", "zero2", "fsdp"}) {
    for (const int world : {1, 2, 3}) {
      check_as_one(world, {.strategy = strategy, .epochs = 2, .adam = true});
      check_as_one(world,
                   {.strategy = strategy, .batch = 4, .steps = 2, .epochs = 2, .clip = true});
    }
  }
}

TEST_CASE("batches that are left at an epoch's end are a step, and a short one counts by samples") {
  // 22 samples in batches of 4: five whole ones and one of two, in steps of 4.
  for (const char* strategy : {"ddp", "fsdp"}) {
    const Run run{.strategy = strategy, .n = 22, .batch = 4, .steps = 4, .epochs = 2};
    const Numbers expected = alone(run, 16);
    CHECK(farthest(expected, on_ranks(1, [&](launch::Job& job) { return train(job, run); })[0]) <
          1e-10);
  }
}

TEST_CASE("a loss counts by what it is a mean of") {
  // 1 label of loss 4, and 99 of mean 1: 1.03, by the weight's gradient.
  for (const char* strategy : {"ddp", "zero2", "fsdp"}) {
    const auto found = on_ranks(2, [&](launch::Job& job) {
      launch::Accelerator accelerator(job, {.strategy = strategy});
      nn::Linear net(1, 1, false);
      net.weight.data<float>()[0] = 0;
      nn::SGD sgd(net.parameters(), {.lr = 1});
      auto [model, optimizer] = accelerator.prepare(net, sgd);
      const bool first = job.rank() == 0;
      const auto turn = accelerator.accumulate(model);
      accelerator.backward(sum(model(full({1, 1}, first ? 4.0 : 1.0))), first ? 1 : 99);
      optimizer.step();
      return Numbers{-double{model.state_dict()[0].second.item<float>()}};
    });
    CHECK(found[0][0] == doctest::Approx(1.03));
    CHECK(found[1][0] == doctest::Approx(1.03));
  }
}

TEST_CASE("the scheduler makes as many steps as ranks, or one, and none within a step") {
  const auto steps = [](bool counts_updates, bool split) {
    return on_ranks(2, [&](launch::Job& job) {
      launch::Accelerator accelerator(job, {.gradient_accumulation_steps = 2,
                                            .split_batches = split,
                                            .scheduler_counts_updates = counts_updates});
      Regression net;
      nn::SGD sgd(net.parameters(), {.lr = 1});
      nn::StepLR step_lr(sgd, 1000);
      data::DataLoader loader(line(20), {.batch_size = 2});  // 5 or 10 batches a rank
      auto [scheduler, optimizer, model, training] = accelerator.prepare(step_lr, sgd, net, loader);
      for (const data::Batch& batch : training) {
        const auto turn = accelerator.accumulate(model);
        accelerator.backward(squared(model(batch.x), batch.y));
        optimizer.step();
        scheduler.step();
        optimizer.zero_grad();
      }
      return scheduler.steps();
    })[1];
  };
  CHECK(steps(false, false) == 6);  // 3 updates of 2 ranks
  CHECK(steps(true, false) == 3);
  CHECK(steps(false, true) == 5);  // 10 batches of all ranks
}

TEST_CASE("what is not finite on one rank has all leave the step out") {
  for (const char* strategy : {"ddp", "zero1", "zero2", "fsdp"}) {
    CAPTURE(strategy);
    const auto found = on_ranks(2, [&](launch::Job& job) {
      launch::Accelerator accelerator(job, {.mixed_precision = "fp16", .strategy = strategy});
      nn::Linear net(2, 2);
      nn::SGD sgd(net.parameters(), {.lr = 0.1});
      nn::StepLR step_lr(sgd, 1);
      auto [model, optimizer, scheduler] = accelerator.prepare(net, sgd, step_lr);
      const auto step = [&](double value) {
        const auto turn = accelerator.accumulate(model);
        accelerator.backward(mean(model(full({2, 2}, value))));
        accelerator.clip_grad_norm_(model.parameters(), 1.0);
        optimizer.step();
        scheduler.step();
        optimizer.zero_grad();
      };
      const double scale = accelerator.scaler().get_scale();
      const auto before = model.state_dict()[0].second.to_vector<float>();
      step(job.rank() == 1 ? INFINITY : 1.0);
      CHECK(accelerator.optimizer_step_was_skipped());
      CHECK(optimizer.step_was_skipped());
      CHECK(model.state_dict()[0].second.to_vector<float>() == before);
      CHECK(scheduler.steps() == 0);
      CHECK(accelerator.scaler().get_scale() == scale / 2);
      step(1.0);
      CHECK(!accelerator.optimizer_step_was_skipped());
      CHECK(!optimizer.step_was_skipped());
      CHECK(model.state_dict()[0].second.to_vector<float>() != before);
      return scheduler.steps();
    });
    CHECK(found == std::vector<std::int64_t>{2, 2});
  }
}

TEST_CASE("what is asked for wrongly is an Error on all ranks") {
  const auto of = [](int world, const launch::AcceleratorOptions& options) {
    return failure_of(world,
                      [&](launch::Job& job) { launch::Accelerator accelerator(job, options); });
  };
  const std::string unknown = of(2, {.strategy = "zero-2"});
  CHECK(unknown.find("did you mean 'zero2'? (there are none, ddp, zero1, zero2, fsdp)") !=
        std::string::npos);
  CHECK(of(2, {.strategy = "none"}).find("take 'ddp'") != std::string::npos);
  CHECK(of(1, {.mixed_precision = "b16"}).find("did you mean 'bf16'") != std::string::npos);
  CHECK(of(1, {.gradient_accumulation_steps = 0}).find("at least 1") != std::string::npos);
  CHECK(failure_of(2, [](launch::Job& job) {
          launch::Accelerator accelerator(job);
          Regression net, other;
          nn::SGD sgd(other.parameters(), {.lr = 1});
          static_cast<void>(accelerator.prepare(net, sgd));
        }).find("none of a prepared model's") != std::string::npos);
  CHECK(failure_of(2, [](launch::Job& job) {
          launch::Accelerator accelerator(job, {.strategy = "zero2"});
          Regression net;
          static_cast<void>(accelerator.prepare(net));
        }).find("the one optimizer that trains it") != std::string::npos);
  CHECK(failure_of(2, [](launch::Job& job) {
          launch::Accelerator accelerator(job);
          const data::BatchPlan plan = [](std::int64_t) { return data::Batches{{0, 1}, {2}}; };
          data::DataLoader loader(line(4), plan);
          static_cast<void>(accelerator.prepare(loader));
        }).find("a loader by a plan does not say which of the 2 ranks") != std::string::npos);
}

TEST_CASE("what one rank's second backward of a step cannot be is an Error on all ranks") {
  for (const bool by_samples : {true, false}) {
    CAPTURE(by_samples);
    const auto errors = on_ranks(2, [&](launch::Job& job) {
      launch::Accelerator accelerator(job);
      Regression net;
      auto model = accelerator.prepare(net);
      const Tensor x = zeros({1, 1}, DType::f64);
      accelerator.backward(sum(model(x)));
      std::string error = "no Error";
      try {
        const bool is_odd = job.rank() == 1;
        const Tensor loss = sum(model(x));
        accelerator.backward(is_odd && !by_samples ? loss.detach() : loss,
                             is_odd && by_samples ? -1 : 1);
      } catch (const Error& thrown) {
        error = thrown.what();
      }
      return error;
    });
    for (const std::string& each : errors) {
      CHECK(each.find("[accelerator] backward") != std::string::npos);
      CHECK(each.find("rank 1: expected a loss that goes through the model") != std::string::npos);
    }
  }
}

TEST_CASE("a second backward in the turn that ends a step of several batches is an Error") {
  const auto run = [](int world, const char* strategy, bool twice) {
    return failure_of(world, [&](launch::Job& job) {
      launch::Accelerator accelerator(job,
                                      {.gradient_accumulation_steps = 2, .strategy = strategy});
      Regression net;
      nn::SGD sgd(net.parameters(), {.lr = 0.1});
      auto [model, optimizer] = accelerator.prepare(net, sgd);
      const Tensor x = zeros({1, 1}, DType::f64);
      for (int batch = 0; batch < 4; ++batch) {
        const auto turn = accelerator.accumulate(model);
        accelerator.backward(sum(model(x)));
        if (twice) accelerator.backward(sum(model(x)));
        optimizer.step();
        optimizer.zero_grad();
      }
    });
  };
  for (const int world : {1, 2}) {
    for (const char* strategy : {"ddp", "fsdp"}) {
      CAPTURE(world);
      CAPTURE(strategy);
      CHECK(run(world, strategy, false) == "no Error");
      CHECK(run(world, strategy, true).find("add the losses of a batch up") != std::string::npos);
    }
  }
}
