// SPDX-License-Identifier: Apache-2.0
// The Accelerator where a loop is not the plain one: ranks without labels, two optimizers, loops
// that are left early, batches outside of accumulate(), schedules that end.
#include <peal/nn/layers/norm.h>
#include <peal/tests/folder.h>

#include "accelerator_ranks.h"

using namespace peal;
using namespace peal::testing;

TEST_CASE("with fsdp a rank without labels in a batch weighs as all ranks do") {
  // One weight for each rank, so that each has a piece. Rank 0: no label, then one of loss 4; rank
  // 1: one label of loss 1, twice: the mean is 2.
  const auto found = on_ranks(2, [](launch::Job& job) {
    launch::Accelerator accelerator(job, {.gradient_accumulation_steps = 2, .strategy = "fsdp"});
    nn::Linear net(2, 1, false);
    nn::SGD sgd(net.parameters(), {.lr = 1});
    auto [model, optimizer] = accelerator.prepare(net, sgd);
    const bool first = job.rank() == 0;
    const Numbers before = values_of(model);
    for (int batch = 0; batch < 2; ++batch) {
      const auto turn = accelerator.accumulate(model);
      accelerator.backward(sum(model(full({1, 2}, first ? 4.0 * batch : 1.0))), first ? batch : 1);
      optimizer.step();
      optimizer.zero_grad();
    }
    const Numbers after = values_of(model);
    return Numbers{before[0] - after[0], before[1] - after[1]};
  });
  for (const Numbers& each : found) {
    CHECK(each[0] == doctest::Approx(2));
    CHECK(each[1] == doctest::Approx(2));
  }
}

TEST_CASE("with fp16 each of two optimizers steps with its own gradients, unscaled once") {
  for (const char* strategy : {"ddp", "fsdp"}) {
    CAPTURE(strategy);
    on_ranks(2, [&](launch::Job& job) {
      launch::Accelerator accelerator(job, {.mixed_precision = "fp16", .strategy = strategy});
      nn::Linear one(2, 2, false), other(2, 2, false);
      nn::SGD first(one.parameters(), {.lr = 1}), second(other.parameters(), {.lr = 1});
      auto [model, twin, optimizer, twins] = accelerator.prepare(one, other, first, second);
      const auto step = [&](launch::PreparedModel& of, launch::PreparedOptimizer& its, bool value) {
        const Numbers before = values_of(of);
        const auto turn = accelerator.accumulate(of);
        accelerator.backward(mean(of(full({1, 2}, 1.0))));  // 0.5 for each weight
        if (value) {
          accelerator.clip_grad_value_(of.parameters(), 0.25);
        } else {
          accelerator.clip_grad_norm_(of.parameters(), 0.5);  // of 1
        }
        its.step();
        its.zero_grad();
        const Numbers after = values_of(of);
        for (std::size_t i = 0; i < after.size(); ++i) {
          CHECK(before[i] - after[i] == doctest::Approx(0.25).epsilon(1e-3));
        }
      };
      for (const bool value : {true, false, true, false}) {
        step(model, optimizer, value);
        step(twin, twins, value);
      }
      return 0;
    });
  }
}

TEST_CASE("with fp16 clipped gradients are stepped with or zeroed, before others are added") {
  const auto run = [](bool zero) {
    return failure_of(2, [&](launch::Job& job) {
      launch::Accelerator accelerator(job, {.mixed_precision = "fp16"});
      nn::Linear net(2, 2, false);
      nn::SGD sgd(net.parameters(), {.lr = 1});
      auto [model, optimizer] = accelerator.prepare(net, sgd);
      const Numbers before = values_of(model);
      for (int batch = 0; batch < 2; ++batch) {
        const auto turn = accelerator.accumulate(model);
        accelerator.backward(mean(model(full({1, 2}, 1.0))));
        accelerator.clip_grad_norm_(model.parameters(), 2.0);  // of 1
        if (batch == 1) optimizer.step();
        if (zero) optimizer.zero_grad();
      }
      const Numbers after = values_of(model);
      CHECK(before[0] - after[0] == doctest::Approx(0.5).epsilon(1e-3));
    });
  };
  CHECK(run(true) == "no Error");
  CHECK(run(false).find("clipped, and no step followed") != std::string::npos);
}

TEST_CASE("an evaluation that is left early is not what training counts by") {
  on_ranks(1, [](launch::Job& job) {
    launch::Accelerator accelerator(job, {.gradient_accumulation_steps = 4});
    Regression net;
    data::DataLoader loader(line(12), {.batch_size = 2}), tests(line(9), {.batch_size = 3});
    auto [model, training, test] = accelerator.prepare(net, loader, tests);
    std::string steps;
    for (const data::Batch& batch : training) {
      const auto turn = accelerator.accumulate(model);
      steps += accelerator.sync_gradients() ? "1" : "0";
      CHECK(accelerator.gather_for_metrics(batch.x).numel() == 2);
      if (steps.size() == 1) {
        CHECK(test.next().has_value());
        const auto second = test.next();
        REQUIRE(second.has_value());
        CHECK(accelerator.gather_for_metrics(second->x).numel() == 3);
      }
      if (steps.size() == 2) CHECK(test.next().has_value());  // goes on
    }
    CHECK(steps == "000101");
    return 0;
  });
}

TEST_CASE("outside of accumulate() every batch is a step, also after groups that were left") {
  const Folder folder;
  on_ranks(2, [&](launch::Job& job) {
    launch::Accelerator accelerator(job, {.gradient_accumulation_steps = 4,
                                          .last_group = launch::LastGroup::drop,
                                          .project_dir = folder.path.string()});
    Regression net;
    nn::SGD sgd(net.parameters(), {.lr = 0.1});
    data::DataLoader loader(line(24), {.batch_size = 2});  // 6 batches a rank
    auto [model, optimizer, training] = accelerator.prepare(net, sgd, loader);
    const auto plain_step = [&] {
      CHECK(accelerator.sync_gradients());
      const Numbers before = values_of(model);
      accelerator.backward(squared(model(Tensor::from(Numbers{1}, {1, 1}, Device{})),
                                   Tensor::from(Numbers{9}, {1, 1}, Device{})));
      optimizer.step();
      optimizer.zero_grad();
      CHECK(values_of(model) != before);
    };
    int wanted = 0;
    for (const data::Batch& batch : training) {
      const auto turn = accelerator.accumulate(model);
      wanted += turn.wanted() ? 1 : 0;
      accelerator.backward(squared(model(batch.x), batch.y));
      optimizer.step();
      optimizer.zero_grad();
    }
    CHECK(wanted == 4);
    accelerator.save_state();  // two batches were dropped, and none is under way
    plain_step();
    for (const data::Batch& batch : training) {
      const auto turn = accelerator.accumulate(model);
      accelerator.backward(squared(model(batch.x), batch.y));
      break;
    }
    plain_step();
    return 0;
  });
}

TEST_CASE("a number of samples is heeded, or an Error where it cannot be") {
  CHECK(failure_of(2, [](launch::Job& job) {
          launch::Accelerator accelerator(job);
          nn::Linear one(1, 1), other(1, 1);
          auto [model, twin] = accelerator.prepare(one, other);
          const auto turn = accelerator.accumulate(model, twin);
          accelerator.backward(sum(twin(model(full({1, 1}, 1.0)))), 99);
        }).find("99 samples were named") != std::string::npos);
}

TEST_CASE("without mixed precision the program's own Autocast holds in call(), too") {
  on_ranks(1, [](launch::Job& job) {
    launch::Accelerator accelerator(job);
    auto model = accelerator.prepare(nn::Linear(2, 2));
    const Autocast guard(DType::bf16);
    const auto product = [](const Tensor& x) { return matmul(x, x); };
    CHECK(model.call(product, full({2, 2}, 1.0)).dtype() == DType::bf16);
    return 0;
  });
}

TEST_CASE("OneCycleLR is at its end when several ranks have made all its steps") {
  const auto steps = on_ranks(4, [](launch::Job& job) {
    launch::Accelerator accelerator(job);
    Regression net;
    nn::SGD sgd(net.parameters(), {.lr = 0.1, .momentum = 0.9});
    nn::OneCycleLR cycle(sgd, {.max_lr = 0.1, .total_steps = 10});
    data::DataLoader loader(line(20), {.batch_size = 2});  // 10 batches, 3 a rank
    auto [model, optimizer, schedule, training] = accelerator.prepare(net, sgd, cycle, loader);
    for (const data::Batch& batch : training) {
      const auto turn = accelerator.accumulate(model);
      accelerator.backward(squared(model(batch.x), batch.y));
      optimizer.step();
      schedule.step();
      optimizer.zero_grad();
    }
    return schedule.steps();
  });
  CHECK(steps == std::vector<std::int64_t>(4, 10));
}

TEST_CASE("a whole model has rank 0's buffers, with every strategy") {
  struct WithNorm : nn::Module {
    nn::Linear inner = add("inner", nn::Linear(1, 3));
    nn::BatchNorm1d norm = add("norm", nn::BatchNorm1d(3));
    Tensor forward(const Tensor& x) override { return norm(inner(x)); }
  };
  for (const char* strategy : {"ddp", "zero1", "zero2", "fsdp"}) {
    const auto found = on_ranks(2, [&](launch::Job& job) {
      launch::Accelerator accelerator(job, {.strategy = strategy});
      WithNorm net;
      nn::SGD sgd(net.parameters(), {.lr = 0.05});
      auto [model, optimizer] = accelerator.prepare(net, sgd);
      const NoGrad guard;
      const Numbers x{1.0 + job.rank(), 2.0};
      model(cast(Tensor::from(x, {2, 1}, Device{}), DType::f32));
      const auto means = [&] { return net.norm.running_mean.to_vector<float>(); };
      const auto own = means();
      const auto whole = model.whole();
      return std::pair(own, means());
    });
    CAPTURE(strategy);
    CHECK(found[0].first != found[1].first);
    CHECK(found[0].second == found[0].first);
    CHECK(found[1].second == found[0].first);
  }
}
