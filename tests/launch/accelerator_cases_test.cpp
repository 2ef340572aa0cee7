// SPDX-License-Identifier: Apache-2.0
// The Accelerator in the cases that users of training engines report: groups that go over epochs,
// batches of other sizes, labels left out, a rank that fails within a step, f16 within groups,
// schedules of updates, noise and first weights of ranks.
#include <peal/nn/model_shards.h>
#include <peal/tests/folder.h>

#include <atomic>

#include "accelerator_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

const std::vector<std::string> strategies{"ddp", "zero1", "zero2", "fsdp"};

// Batches of all ranks, one after the other, as a plain loop has them.
std::vector<data::Batch> whole_batches(std::int64_t n, std::int64_t batch, int epochs) {
  data::DataLoader loader(line(n), {.batch_size = batch});
  std::vector<data::Batch> all;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (const data::Batch& each : loader) all.push_back(each);
  }
  return all;
}

}  // namespace

TEST_CASE("with LastGroup::carry a step goes on in the next epoch") {
  Regression plain;
  nn::SGD plain_sgd(plain.parameters(), {.lr = 0.05, .momentum = 0.9});
  const auto thirds = whole_batches(48, 16, 2);
  for (std::size_t i = 0; i < thirds.size(); i += 2) {
    plain_sgd.zero_grad();
    squared(plain(cat({thirds[i].x, thirds[i + 1].x})), cat({thirds[i].y, thirds[i + 1].y}))
        .backward();
    plain_sgd.step();
  }
  for (const std::string& strategy : strategies) {
    for (const int world : {1, 2}) {
      const auto found = on_ranks(world, [&](launch::Job& job) {
        launch::Accelerator accelerator(job, {.gradient_accumulation_steps = 4,
                                              .last_group = launch::LastGroup::carry,
                                              .strategy = strategy});
        Regression net;
        nn::SGD sgd(net.parameters(), {.lr = 0.05, .momentum = 0.9});
        data::DataLoader loader(line(48), {.batch_size = 8 / world});  // six batches each
        auto [model, optimizer, training] = accelerator.prepare(net, sgd, loader);
        std::string steps;
        for (int epoch = 0; epoch < 2; ++epoch) {
          for (const data::Batch& batch : training) {
            const auto turn = accelerator.accumulate(model);
            steps += accelerator.sync_gradients() ? "1" : "0";
            accelerator.backward(squared(model(batch.x), batch.y));
            optimizer.step();
            optimizer.zero_grad();
          }
        }
        CHECK(steps == "000100010001");
        return values_of(model);
      });
      CAPTURE(strategy);
      CAPTURE(world);
      for (const Numbers& each : found) CHECK(farthest(values_of(plain), each) < 1e-10);
    }
  }
}

TEST_CASE("batches of ranks that differ in size count by their samples") {
  // 22 samples in batches of 4: three a rank, and rank 1's last has two.
  for (const std::int64_t steps : {1, 2, 3}) {
    Regression plain;
    nn::SGD plain_sgd(plain.parameters(), {.lr = 0.05, .momentum = 0.9});
    for (const data::Batch& batch : whole_batches(22, 8 * steps, 2)) {
      plain_sgd.zero_grad();
      squared(plain(batch.x), batch.y).backward();
      plain_sgd.step();
    }
    for (const std::string& strategy : strategies) {
      const auto found = on_ranks(2, [&](launch::Job& job) {
        launch::Accelerator accelerator(
            job,
            {.gradient_accumulation_steps = steps, .strategy = strategy, .even_batches = false});
        Regression net;
        nn::SGD sgd(net.parameters(), {.lr = 0.05, .momentum = 0.9});
        data::DataLoader loader(line(22), {.batch_size = 4});
        auto [model, optimizer, training] = accelerator.prepare(net, sgd, loader);
        for (int epoch = 0; epoch < 2; ++epoch) {
          for (const data::Batch& batch : training) {
            const auto turn = accelerator.accumulate(model);
            accelerator.backward(squared(model(batch.x), batch.y));
            optimizer.step();
            optimizer.zero_grad();
          }
        }
        return values_of(model);
      });
      CAPTURE(strategy);
      CAPTURE(steps);
      for (const Numbers& each : found) CHECK(farthest(values_of(plain), each) < 1e-10);
    }
  }
}

TEST_CASE("labels that are left out weigh nothing, however ranks and batches cut them") {
  // The loss is a mean over the samples whose x is above -0.5: some batches have none of them.
  const auto masked = [](const Tensor& out, const data::Batch& batch, double& count) {
    Numbers mask;
    for (const double x : batch.x.to_vector<double>()) mask.push_back(x > -0.5 ? 1 : 0);
    count = 0;
    for (const double each : mask) count += each;
    const Tensor keep = Tensor::from(mask, batch.y.shape(), Device{});
    return sum(keep * (out - batch.y) * (out - batch.y)) * (1 / std::max(count, 1.0));
  };
  Regression plain;
  nn::SGD plain_sgd(plain.parameters(), {.lr = 0.05});
  double count = 0;
  for (const data::Batch& batch : whole_batches(40, 8, 1)) {
    plain_sgd.zero_grad();
    masked(plain(batch.x), batch, count).backward();
    plain_sgd.step();
  }
  for (const std::string& strategy : strategies) {
    for (const auto& [world, steps, batch_size] :
         std::vector<std::array<int, 3>>{{1, 1, 8}, {1, 4, 2}, {2, 2, 2}, {4, 2, 1}}) {
      const auto found = on_ranks(world, [&, steps = steps, size = batch_size](launch::Job& job) {
        launch::Accelerator accelerator(
            job, {.gradient_accumulation_steps = steps, .strategy = strategy});
        Regression net;
        nn::SGD sgd(net.parameters(), {.lr = 0.05});
        data::DataLoader loader(line(40), {.batch_size = size});
        auto [model, optimizer, training] = accelerator.prepare(net, sgd, loader);
        double labels = 0;
        for (const data::Batch& batch : training) {
          const auto turn = accelerator.accumulate(model);
          const Tensor loss = masked(model(batch.x), batch, labels);
          accelerator.backward(loss, labels);
          optimizer.step();
          optimizer.zero_grad();
        }
        return values_of(model);
      });
      CAPTURE(strategy);
      CAPTURE(world);
      CAPTURE(steps);
      for (const Numbers& each : found) CHECK(farthest(values_of(plain), each) < 1e-10);
    }
  }
}

TEST_CASE("a step without any label leaves the model as it is") {
  for (const std::string& strategy : strategies) {
    for (const std::int64_t steps : {1, 2}) {
      on_ranks(2, [&](launch::Job& job) {
        launch::Accelerator accelerator(
            job, {.gradient_accumulation_steps = steps, .strategy = strategy});
        Regression net;
        nn::SGD sgd(net.parameters(), {.lr = 0.05});
        auto [model, optimizer] = accelerator.prepare(net, sgd);
        const Numbers before = values_of(model);
        const auto step = [&](double labels) {
          for (std::int64_t batch = 0; batch < steps; ++batch) {
            const auto turn = accelerator.accumulate(model);
            const Tensor out = model(full({1, 1}, job.rank() + 1.0, DType::f64));
            accelerator.backward(sum(out) * (labels > 0 ? 1.0 : 0.0), labels);
            optimizer.step();
            optimizer.zero_grad();
          }
        };
        step(0);
        CHECK(values_of(model) == before);
        step(1);
        CHECK(std::isfinite(farthest(values_of(model), before)));
        CHECK(values_of(model) != before);
        return 0;
      });
    }
  }
}

TEST_CASE("with fp16 a step of two batches is exact, or left out whole on all ranks") {
  for (const std::string& strategy : strategies) {
    CAPTURE(strategy);
    on_ranks(2, [&](launch::Job& job) {
      launch::Accelerator accelerator(
          job, {.mixed_precision = "fp16", .gradient_accumulation_steps = 2, .strategy = strategy});
      nn::Linear net(2, 8, false);
      for (int i = 0; i < 16; ++i) net.weight.data<float>()[i] = 0;
      nn::SGD sgd(net.parameters(), {.lr = 512});
      nn::StepLR step_lr(sgd, 1000);
      auto [model, optimizer, scheduler] = accelerator.prepare(net, sgd, step_lr);
      const double scale = accelerator.scaler().get_scale();
      const auto step = [&](double broken) {
        for (int batch = 0; batch < 2; ++batch) {
          const auto turn = accelerator.accumulate(model);
          // So small that gradients times the first scale, 65536, are in f16's range.
          const double own = (1 + job.rank() + 4 * batch) / 64.0;
          const double x = batch == 0 && job.rank() == 1 ? broken : own;
          accelerator.backward(mean(model(full({1, 2}, x))));
          optimizer.step();
          scheduler.step();
          optimizer.zero_grad();
        }
      };
      step(2 / 64.0);  // 1, 2, 5 and 6
      CHECK(values_of(model) == Numbers(16, -3.5));
      step(INFINITY);
      CHECK(accelerator.optimizer_step_was_skipped());
      CHECK(values_of(model) == Numbers(16, -3.5));
      CHECK(scheduler.steps() == 2);  // of two ranks, once
      CHECK(accelerator.scaler().get_scale() == scale / 2);
      step(2 / 64.0);
      CHECK(values_of(model) == Numbers(16, -7));
      CHECK(scheduler.steps() == 4);
      return 0;
    });
  }
}

TEST_CASE("a rank that fails within a step ends all, with its own words") {
  for (const std::string& strategy : strategies) {
    std::atomic<int> ended{0};
    const std::string words = failure_of(3, [&](launch::Job& job) {
      launch::Accelerator accelerator(job,
                                      {.gradient_accumulation_steps = 4, .strategy = strategy});
      Regression net;
      nn::SGD sgd(net.parameters(), {.lr = 0.05});
      data::DataLoader loader(line(96), {.batch_size = 2});
      auto [model, optimizer, training] = accelerator.prepare(net, sgd, loader);
      int batches = 0;
      try {
        for (const data::Batch& batch : training) {
          const auto turn = accelerator.accumulate(model);
          accelerator.backward(squared(model(batch.x), batch.y));
          if (++batches == 6 && job.rank() == 1) throw Error("the label is torn");
          optimizer.step();
          optimizer.zero_grad();
        }
      } catch (const Error&) {
        ++ended;
        throw;
      }
    });
    CAPTURE(strategy);
    CAPTURE(words);
    CHECK(words.find("the label is torn") != std::string::npos);
    CHECK(ended == 3);
  }
}

TEST_CASE("a schedule of updates acts at the update that it names, for all ranks and groups") {
  for (const auto& [world, steps] :
       std::vector<std::pair<int, std::int64_t>>{{1, 1}, {2, 1}, {1, 3}, {2, 3}}) {
    const auto found = on_ranks(world, [&, steps = steps, world = world](launch::Job& job) {
      launch::Accelerator accelerator(
          job, {.gradient_accumulation_steps = steps, .scheduler_counts_updates = true});
      Regression net;
      nn::SGD sgd(net.parameters(), {.lr = 1e-3});
      nn::StepLR step_lr(sgd, 20);
      data::DataLoader loader(line(50 * world), {.batch_size = 2});  // 25 batches a rank
      auto [model, optimizer, scheduler, training] = accelerator.prepare(net, sgd, step_lr, loader);
      Numbers rates;
      while (training.epoch() < 3) {
        for (const data::Batch& batch : training) {
          const auto turn = accelerator.accumulate(model);
          accelerator.backward(squared(model(batch.x), batch.y));
          if (accelerator.sync_gradients()) rates.push_back(optimizer.lr());
          optimizer.step();
          scheduler.step();
          optimizer.zero_grad();
        }
      }
      return rates;
    });
    for (const Numbers& rates : found) {
      REQUIRE(rates.size() == (steps == 1 ? 75 : 27));
      CHECK(rates[19] == doctest::Approx(1e-3));
      CHECK(rates[20] == doctest::Approx(1e-4));
      CHECK(rates[26] == doctest::Approx(1e-4));
    }
  }
}

TEST_CASE("ranks begin with equal weights, and draw noise of their own") {
  const auto found = on_ranks(3, [](launch::Job& job) {
    launch::Accelerator accelerator(job);
    launch::set_seed(7);
    nn::Linear net(4, 4);
    const Numbers before = values_of(net);
    auto model = accelerator.prepare(net);
    const Tensor noise = dropout(ones({64}), 0.5, true);
    return std::pair{before, noise.to_vector<float>()};
  });
  CHECK(found[0].first == found[1].first);
  CHECK(found[0].first == found[2].first);
  CHECK(found[0].second != found[1].second);
  CHECK(found[1].second != found[2].second);
}

TEST_CASE("after set_seed() a second model begins alike on all ranks, and noise differs again") {
  const auto found = on_ranks(2, [](launch::Job& job) {
    launch::Accelerator accelerator(job);
    Numbers weights, noise;
    for (int fold = 0; fold < 2; ++fold) {
      launch::set_seed(7);
      nn::Linear net(4, 4);
      weights = values_of(net);
      const auto model = accelerator.prepare(net);
      noise = cast(dropout(ones({64}), 0.5, true), DType::f64).to_vector<double>();
    }
    return std::pair{weights, noise};
  });
  CHECK(found[0].first == found[1].first);
  CHECK(found[0].second != found[1].second);
}

TEST_CASE("a backward is averaged where it runs, wherever its forward was; batches are skipped") {
  on_ranks(2, [](launch::Job& job) {
    launch::Accelerator accelerator(job);
    nn::Linear net(1, 1, false);
    data::DataLoader loader(line(16), {.batch_size = 4}), plain(line(16), {.batch_size = 4});
    auto [model, training] = accelerator.prepare(net, loader);
    Tensor out;
    {
      const auto local = accelerator.no_sync(model);
      out = model(full({1, 1}, job.rank() + 1.0));
    }
    accelerator.backward(sum(out));
    CHECK(net.weight.grad().item<float>() == 1.5f);
    accelerator.skip_first_batches(training, 1);
    const auto rest = training.next();
    REQUIRE(rest.has_value());
    plain.skip_first_batches(2 + job.rank());
    CHECK(rest->x.to_vector<double>() == plain.next()->x.to_vector<double>());
    CHECK(!training.next().has_value());
    CHECK(training.size() == 2);  // later epochs are whole
    return 0;
  });
}

TEST_CASE("a model is saved alone, whatever its strategy, and loaded into a plain one") {
  for (const std::string& strategy : strategies) {
    const Folder folder;
    const auto found = on_ranks(2, [&](launch::Job& job) {
      launch::Accelerator accelerator(job, {.strategy = strategy});
      Regression net;
      nn::SGD sgd(net.parameters(), {.lr = 0.1});
      auto [model, optimizer] = accelerator.prepare(net, sgd);
      accelerator.backward(mean(model(full({2, 1}, job.rank() + 1.0, DType::f64))));
      optimizer.step();
      accelerator.save_model(model, (folder.path / "out").string(), 40);
      CHECK_THROWS_AS(accelerator.save_model(model, "/proc/none"), Error);
      return values_of(model);
    });
    Regression plain;
    CHECK(values_of(plain) != found[0]);
    nn::load_checkpoint_in_model(plain, folder.path / "out");
    CAPTURE(strategy);
    CHECK(values_of(plain) == found[0]);
    CHECK(values_of(plain) == found[1]);
  }
}

TEST_CASE(
    "the sizes that are tried are Accelerate's, and a batch of one that is too much an Error") {
  std::vector<std::int64_t> tried;
  const std::string words = failure_of(1, [&](launch::Job& job) {
    launch::find_executable_batch_size(job.group(), 128, [&](std::int64_t size) {
      tried.push_back(size);
      throw std::bad_alloc();
    });
  });
  CHECK(tried == std::vector<std::int64_t>{128, 115, 103, 92, 82, 73, 65, 58, 52, 46,
                                           41,  36,  32,  28, 25, 22, 19, 17, 15, 13,
                                           11,  9,   8,   7,  6,  5,  4,  3,  2,  1});
  CHECK(words.find("a batch of 1 fits into memory; began with 128") != std::string::npos);
}
