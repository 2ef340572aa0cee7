// SPDX-License-Identifier: Apache-2.0
// The Accelerator where a loop is not the plain one: ranks without labels, two optimizers, loops
// that are left early, batches outside of accumulate(), schedules that end.
#include <peal/nn/checkpoint.h>
#include <peal/nn/layers/norm.h>
#include <peal/tests/errors.h>
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

TEST_CASE("losses that are divided by hand, outside of accumulate(), add up as on one rank") {
  // 21 samples in halves of 6 (the last of 3): the ranks' last batches differ in size.
  Regression plain;
  nn::SGD plain_sgd(plain.parameters(), {.lr = 0.05, .momentum = 0.9});
  data::DataLoader all(line(21), {.batch_size = 6});
  int step = 0;
  for (const data::Batch& batch : all) {
    (squared(plain(batch.x), batch.y) * 0.5).backward();
    if (step++ % 2 == 0) continue;
    plain_sgd.step();
    plain_sgd.zero_grad();
  }
  for (const std::string strategy : {"ddp", "zero1", "fsdp"}) {
    for (const int world : {1, 2, 3}) {
      const auto found = on_ranks(world, [&](launch::Job& job) {
        launch::Accelerator accelerator(job, {.strategy = strategy, .even_batches = false});
        Regression net;
        nn::SGD sgd(net.parameters(), {.lr = 0.05, .momentum = 0.9});
        data::DataLoader loader(line(21), {.batch_size = 6 / world});
        auto [model, optimizer, training] = accelerator.prepare(net, sgd, loader);
        int at = 0;
        while (at < 4) {
          const auto batch = training.next();
          // A rank without a batch has a part in the step all the same.
          const Tensor x = batch ? batch->x : zeros({1, 1}, DType::f64);
          const Tensor y = batch ? batch->y : zeros({1, 1}, DType::f64);
          accelerator.backward(squared(model(x), y) * 0.5, batch ? double(batch->size()) : 0);
          if (at++ % 2 == 0) continue;
          optimizer.step();
          optimizer.zero_grad();
        }
        return values_of(model);
      });
      CAPTURE(strategy);
      CAPTURE(world);
      for (const Numbers& each : found) CHECK(farthest(values_of(plain), each) < 1e-10);
    }
  }
  check_has(failure_of(2,
                       [](launch::Job& job) {
                         launch::Accelerator accelerator(job, {.strategy = "zero2"});
                         Regression net;
                         nn::SGD sgd(net.parameters(), {.lr = 0.05});
                         auto [model, optimizer] = accelerator.prepare(net, sgd);
                         for (int at = 0; at < 2; ++at) {
                           accelerator.backward(sum(model(zeros({1, 1}, DType::f64))));
                         }
                       }),
            "run the backwards before the last one under no_sync()");
}

TEST_CASE(
    "who skips what is over, after load_state(), skips it once, and an epoch has its length") {
  const Folder folder;
  const std::string middle = folder.path / "run" / "step_6", end = folder.path / "run" / "step_4";
  for (const int world : {1, 2}) {
    const auto trained = [&](const std::string& from, int begins_at, bool saves) {
      return on_ranks(world, [&](launch::Job& job) {
        int steps = begins_at;
        launch::Accelerator accelerator(job);
        Regression net;
        nn::SGD sgd(net.parameters(), {.lr = 0.05, .momentum = 0.9});
        data::DataLoader loader(line(32), {.batch_size = 8 / world, .shuffle = true, .seed = 1});
        auto [model, optimizer, training] = accelerator.prepare(net, sgd, loader);
        if (!from.empty()) accelerator.load_state(from);
        CHECK(training.size() == 4);
        const std::int64_t first = steps / training.size(), rest = steps % training.size();
        for (std::int64_t epoch = first; epoch < 2; ++epoch) {
          if (epoch == first) accelerator.skip_first_batches(training, rest);
          if (epoch == first && rest == 2) {
            check_has(testing::error_of([&] { training.skip_first_batches(1); }),
                      "stands after 2 batches of epoch 1, and the first 1 of them");
          }
          std::int64_t batches = 0;
          for (const data::Batch& batch : training) {
            accelerator.backward(squared(model(batch.x), batch.y));
            optimizer.step();
            optimizer.zero_grad();
            ++batches, ++steps;
            if (saves && steps == 4) accelerator.save_state(end);
            if (saves && steps == 6) accelerator.save_state(middle);
          }
          CHECK(batches == 4 - (epoch == first ? rest : 0));
        }
        return values_of(model);
      });
    };
    const auto whole = trained("", 0, true);
    CAPTURE(world);
    for (const auto& [from, steps] : {std::pair{&middle, 6}, {&end, 4}}) {
      CAPTURE(steps);
      CHECK(trained(*from, steps, false) == whole);
    }
  }
}

TEST_CASE(
    "a fold is forgotten when nobody has what it prepared, and the next one is as the first") {
  const Folder folder;
  for (const std::string strategy : {"ddp", "zero2", "fsdp"}) {
    on_ranks(2, [&](launch::Job& job) {
      launch::Accelerator accelerator(job, {.mixed_precision = "fp16", .strategy = strategy});
      data::DataLoader others(line(8), {.batch_size = 2});
      auto test = accelerator.prepare(others);
      Numbers first;
      for (int fold = 0; fold < 4; ++fold) {
        nn::Linear net(1, 1);
        for (const Tensor& each : net.parameters()) each.copy_(full(each.shape(), 0.5));
        nn::SGD sgd(net.parameters(), {.lr = 0.05});
        nn::ExponentialLR decay(sgd, 0.5);
        data::DataLoader loader(line(8), {.batch_size = 2});
        auto [model, optimizer, training, schedule] = accelerator.prepare(net, sgd, loader, decay);
        for (const data::Batch& batch : training) {
          const Tensor x = cast(batch.x, DType::f32), y = cast(batch.y, DType::f32);
          accelerator.backward(squared(model(x), y) * (fold != 2 ? 1e-3 : INFINITY));
          optimizer.step();
          schedule.step();
          optimizer.zero_grad();
        }
        // That the steps of a fold were left out says nothing about the next one's.
        CHECK(schedule.steps() == (fold != 2 ? 4 : 0));
        if (fold == 0) first = values_of(model);
        if (fold == 1) CHECK(values_of(model) == first);
        const std::string file = folder.path / strategy;
        accelerator.save_state(file);
        CHECK(!nn::CheckpointFile(file).has("model_1"));
        CHECK(nn::CheckpointFile(file).has("loader_1"));  // beside that of the test
        CHECK(!nn::CheckpointFile(file).has("loader_2"));
        check_has(testing::error_of([&] { static_cast<void>(accelerator.prepare(net, sgd)); }),
                  "prepared already");
      }
      CHECK(test.size() == 2);
      return 0;
    });
  }
}

TEST_CASE("several tensors are gathered in one call, and the number of batches a step is set") {
  on_ranks(2, [](launch::Job& job) {
    launch::Accelerator accelerator(job);
    data::DataLoader loader(line(6), {.batch_size = 2});
    Regression net;
    auto [model, test] = accelerator.prepare(net, loader);
    Numbers seen;
    for (const data::Batch& batch : test) {
      auto [x, y] = accelerator.gather_for_metrics(batch.x, batch.y);
      CHECK(x.size(0) == y.size(0));
      for (const double each : y.to_vector<double>()) seen.push_back(each);
      auto [all, rows] = accelerator.gather(batch.x, batch.y);
      CHECK(all.size(0) == 4);
    }
    CHECK(seen == line(6)->get(std::vector<std::int64_t>{0, 1, 2, 3, 4, 5}).y.to_vector<double>());
    accelerator.set_gradient_accumulation_steps(2);
    {
      const auto turn = accelerator.accumulate(model);
      CHECK(!accelerator.sync_gradients());
      check_has(testing::error_of([&] { accelerator.set_gradient_accumulation_steps(1); }),
                "a step is under way");
    }
    { const auto turn = accelerator.accumulate(model); }
    CHECK(accelerator.gradient_accumulation_steps() == 2);
    return 0;
  });
  check_has(failure_of(2,
                       [](launch::Job& job) {
                         launch::Accelerator accelerator(job);
                         accelerator.set_gradient_accumulation_steps(1 + job.rank());
                       }),
            "set_gradient_accumulation_steps");
}
