// SPDX-License-Identifier: Apache-2.0
// The Accelerator where ranks have different numbers of batches: they train as one rank does that
// has all samples once, and end with the same model, optimizer and schedule.
#include <peal/nn/layers/norm.h>
#include <peal/nn/layers/sequential.h>
#include <peal/nn/parallel/sync_batch_norm.h>

#include "accelerator_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

struct Uneven {
  std::int64_t n = 18, batch = 4, steps = 1;
  int epochs = 3;
  bool adam = false, by_next = false;
};

// What a rank has in the end: its model, how many steps the schedule made, and its batches.
struct End {
  Numbers values, batches;
  std::int64_t steps = 0;
};

struct WithNorm : nn::Module {
  nn::Linear inner = add("inner", nn::Linear(1, 3));
  nn::BatchNorm1d norm = add("norm", nn::BatchNorm1d(3));
  Tensor forward(const Tensor& x) override { return norm(inner(x)); }
};

End train_unevenly(launch::Job& job, const Uneven& run) {
  launch::Accelerator accelerator(
      job, {.gradient_accumulation_steps = run.steps, .scheduler_counts_updates = true});
  Regression net;
  nn::SGD sgd(net.parameters(), {.lr = 0.05, .momentum = 0.9});
  nn::AdamW adamw(net.named_parameters(), {.lr = 0.01});
  nn::Optimizer& chosen = run.adam ? static_cast<nn::Optimizer&>(adamw) : sgd;
  nn::StepLR step_lr(chosen, 2, 0.9);
  data::DataLoader loader(line(run.n), {.batch_size = run.batch, .shuffle = true, .seed = 3});
  auto [training, model, optimizer, scheduler] = accelerator.prepare(loader, net, chosen, step_lr);
  End end;
  const auto step = [&](const data::Batch& batch) {
    const auto turn = accelerator.accumulate(model);
    accelerator.backward(squared(model(batch.x), batch.y));
    if (accelerator.sync_gradients()) accelerator.clip_grad_norm_(model.parameters(), 0.5);
    optimizer.step();
    scheduler.step();
    optimizer.zero_grad();
    ++end.batches.back();
  };
  const auto joined = accelerator.join_uneven_inputs({model}, false);
  for (int epoch = 0; epoch < run.epochs; ++epoch) {
    end.batches.push_back(0);
    if (run.by_next) {
      while (const auto batch = training.next()) step(*batch);
    } else {
      for (const data::Batch& batch : training) step(batch);
    }
  }
  end.values = values_of(model);
  end.steps = scheduler.steps();
  return end;
}

End alone(const Uneven& run, std::int64_t batch_of_all) {
  Regression net;
  nn::SGD sgd(net.parameters(), {.lr = 0.05, .momentum = 0.9});
  nn::AdamW adamw(net.named_parameters(), {.lr = 0.01});
  nn::Optimizer& optimizer = run.adam ? static_cast<nn::Optimizer&>(adamw) : sgd;
  nn::StepLR scheduler(optimizer, 2, 0.9);
  data::DataLoader loader(line(run.n), {.batch_size = batch_of_all, .shuffle = true, .seed = 3});
  for (int epoch = 0; epoch < run.epochs; ++epoch) {
    for (const data::Batch& batch : loader) {
      optimizer.zero_grad();
      squared(net(batch.x), batch.y).backward();
      nn::clip_grad_norm_(net.parameters(), 0.5);
      optimizer.step();
      scheduler.step();
    }
  }
  return {values_of(net), {}, scheduler.steps()};
}

void check_as_one(int world, const Uneven& run, const std::vector<Numbers>& batches) {
  const End expected = alone(run, run.batch * run.steps * world);
  const auto found = on_ranks(world, [&](launch::Job& job) { return train_unevenly(job, run); });
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    CAPTURE(world);
    CAPTURE(run.steps);
    CAPTURE(rank);
    CHECK(farthest(expected.values, found[rank].values) < 1e-10);
    CHECK(found[rank].steps == expected.steps);
    CHECK(found[rank].batches == Numbers(static_cast<std::size_t>(run.epochs), batches[rank][0]));
  }
}

}  // namespace

TEST_CASE("ranks with different numbers of batches train as one rank does") {
  check_as_one(2, {.n = 3, .batch = 1}, {{2}, {1}});
  check_as_one(2, {.n = 18}, {{3}, {2}});
  check_as_one(2, {.n = 18, .adam = true, .by_next = true}, {{3}, {2}});
  check_as_one(3, {.n = 28, .adam = true}, {{3}, {2}, {2}});
  check_as_one(3, {.n = 2}, {{1}, {0}, {0}});
  check_as_one(2, {.n = 16}, {{2}, {2}});
  check_as_one(1, {.n = 18}, {{5}});
}

TEST_CASE("a step of several batches ends with the rank that has the most") {
  // Rank 1's third batch begins a step that the fourth one of rank 0 ends.
  check_as_one(2, {.n = 26, .steps = 2, .adam = true}, {{4}, {3}});
  check_as_one(2, {.n = 18, .steps = 2}, {{3}, {2}});
  check_as_one(2, {.n = 18, .steps = 4, .by_next = true}, {{3}, {2}});
}

TEST_CASE("even_batches counts within the context, and where the loader was it stays") {
  on_ranks(2, [](launch::Job& job) {
    launch::Accelerator accelerator(job);
    Regression net;
    data::DataLoader loader(line(18), {.batch_size = 4, .shuffle = true, .seed = 3});
    auto [training, model] = accelerator.prepare(loader, net);
    const auto samples = [&] {
      std::int64_t all = 0;
      for (const data::Batch& batch : training) all += batch.size();
      return all;
    };
    CHECK(samples() == 12);
    {
      const auto joined = accelerator.join_uneven_inputs({model}, false);
      CHECK(samples() == (job.rank() == 0 ? 10 : 8));
      CHECK(training.epoch() == 2);
    }
    CHECK(training.epoch() == 2);
    CHECK(samples() == 12);
    {
      const auto joined = accelerator.join_uneven_inputs({model});
      CHECK(samples() == 12);
    }
    return 0;
  });
}

TEST_CASE("buffers are those of a rank that had a batch") {
  const auto found = on_ranks(3, [](launch::Job& job) {
    launch::Accelerator accelerator(job, {.even_batches = false});
    WithNorm net;
    net.to(DType::f64);
    nn::SGD sgd(net.parameters(), {.lr = 0.01});
    data::DataLoader loader(line(28), {.batch_size = 4});
    auto [training, model, optimizer] = accelerator.prepare(loader, net, sgd);
    const auto joined = accelerator.join_uneven_inputs({model});
    for (const data::Batch& batch : training) {
      accelerator.backward(mean(model(batch.x)));
      optimizer.step();
      optimizer.zero_grad();
    }
    return values_of(model);
  });
  CHECK(found[0] == found[1]);
  CHECK(found[0] == found[2]);
}

TEST_CASE("with a synchronised batch norm, and the most batches on the last rank, too") {
  // Rank r has 10 + r batches of its own part of a stream.
  struct Part : data::StreamDataset {
    std::int64_t parts() const override { return 4; }
    Reader read(std::int64_t part, std::int64_t from, const data::Draws&) const override {
      return [=, k = from]() mutable -> std::optional<data::Batch> {
        if (k >= 2 * (10 + part)) return std::nullopt;
        const double x = static_cast<double>((100 * part + k++) * 37 % 41) / 20 - 1;
        return data::Batch{Tensor::from(Numbers{x}, {1, 1}, Device{}), {}};
      };
    }
  };
  const auto normed_net = [] {
    nn::Sequential net(nn::Linear(1, 3), nn::BatchNorm1d(3));
    net.to(DType::f64);
    return net;
  };
  const auto loss_of = [](const Tensor& out) { return mean(out * out * out); };
  struct End {
    Numbers values;
    std::vector<Tensor> x;
  };
  const auto found = on_ranks(4, [&](launch::Job& job) {
    launch::Accelerator accelerator(job);
    nn::Sequential net = normed_net();
    nn::Module normed = nn::convert_sync_batchnorm(net, job.group());
    nn::SGD sgd(normed.parameters(), {.lr = 0.05, .momentum = 0.9});
    data::StreamLoader loader(std::make_shared<Part>(), {.batch_size = 2, .place = job.place()});
    auto [training, model, optimizer] = accelerator.prepare(loader, normed, sgd);
    End end;
    const auto joined = accelerator.join_uneven_inputs({model});
    for (const data::Batch& batch : training) {
      end.x.push_back(batch.x);
      accelerator.backward(loss_of(model(batch.x)));
      accelerator.clip_grad_norm_(model.parameters(), 0.1);
      optimizer.step();
      optimizer.zero_grad();
    }
    end.values = values_of(model);
    return end;
  });
  manual_seed(1);
  nn::Sequential net = normed_net();
  nn::SGD sgd(net.parameters(), {.lr = 0.05, .momentum = 0.9});
  for (std::size_t turn = 0; turn < 13; ++turn) {
    std::vector<Tensor> x;
    for (const End& end : found) {
      if (turn < end.x.size()) x.push_back(end.x[turn]);
    }
    sgd.zero_grad();
    loss_of(net(cat(x))).backward();
    nn::clip_grad_norm_(net.parameters(), 0.1);
    sgd.step();
  }
  for (std::size_t rank = 0; rank < 4; ++rank) {
    CHECK(found[rank].x.size() == 10 + rank);
    CHECK(farthest(values_of(net), found[rank].values) < 1e-10);
  }
}

TEST_CASE("a loop within a joined one is each rank's own, and one may be left early") {
  const auto found = on_ranks(2, [](launch::Job& job) {
    launch::Accelerator accelerator(job, {.even_batches = false});
    Regression net;
    nn::SGD sgd(net.parameters(), {.lr = 0.05});
    data::DataLoader loader(line(22), {.batch_size = 2}), other(line(3), {.batch_size = 1});
    auto [training, test, model, optimizer] = accelerator.prepare(loader, other, net, sgd);
    std::vector<std::int64_t> seen;
    {
      const auto joined = accelerator.join_uneven_inputs({model});
      for (const std::size_t most : {std::size_t{3}, std::size_t{6}, std::size_t{9}}) {
        std::size_t batches = 0;
        for (const data::Batch& batch : training) {
          accelerator.backward(squared(model(batch.x), batch.y));
          optimizer.step();
          optimizer.zero_grad();
          std::int64_t of_test = 0;
          for (const data::Batch& each : test) of_test += each.size();
          CHECK(of_test == (job.rank() == 0 ? 2 : 1));
          if (++batches == most) break;  // of 6 on rank 0, and 5 on rank 1
        }
        seen.push_back(static_cast<std::int64_t>(batches));
      }
      CHECK(training.next().has_value());  // left for good
    }
    CHECK(seen == (job.rank() == 0 ? std::vector<std::int64_t>{3, 6, 6}
                                   : std::vector<std::int64_t>{3, 5, 5}));
    return values_of(model);
  });
  CHECK(found[0] == found[1]);
}

TEST_CASE("epochs after one that was left early are whole, and all their steps are made") {
  for (const std::int64_t steps : {1, 2}) {
    const auto run = [&](launch::Job& job) {
      launch::Accelerator accelerator(job, {.gradient_accumulation_steps = steps});
      Regression net;
      nn::SGD sgd(net.parameters(), {.lr = 0.05});
      data::DataLoader loader(line(40), {.batch_size = 4 / job.world()});
      auto [training, model, optimizer] = accelerator.prepare(loader, net, sgd);
      const auto joined = accelerator.join_uneven_inputs({model});
      for (int epoch = 0; epoch < 3; ++epoch) {
        int batches = 0;
        for (const data::Batch& batch : training) {
          const auto turn = accelerator.accumulate(model);
          accelerator.backward(squared(model(batch.x), batch.y));
          optimizer.step();
          optimizer.zero_grad();
          if (++batches == 4 && epoch == 0) break;
        }
        CHECK(batches == (epoch == 0 ? 4 : 10));
      }
      return values_of(model);
    };
    const Numbers expected = on_ranks(1, run)[0];
    for (const Numbers& found : on_ranks(2, run)) {
      CAPTURE(steps);
      CHECK(farthest(expected, found) < 1e-10);
    }
  }
}

TEST_CASE("a loop is joined where another one, by next(), was under way before the context") {
  const auto found = on_ranks(2, [](launch::Job& job) {
    launch::Accelerator accelerator(job, {.even_batches = false});
    Regression net;
    nn::SGD sgd(net.parameters(), {.lr = 0.05});
    data::DataLoader loader(line(18), {.batch_size = 4});
    auto [training, model, optimizer] = accelerator.prepare(loader, net, sgd);
    CHECK(training.next().has_value());
    const auto joined = accelerator.join_uneven_inputs({model});
    int batches = 0;
    for (const data::Batch& batch : training) {  // three on rank 0, two on rank 1
      accelerator.backward(squared(model(batch.x), batch.y));
      optimizer.step();
      optimizer.zero_grad();
      ++batches;
    }
    CHECK(batches == 3 - job.rank());
    return values_of(model);
  });
  CHECK(found[0] == found[1]);
}

TEST_CASE("what cannot be right with uneven inputs is an Error on all ranks") {
  const auto of = [](const launch::AcceleratorOptions& options, bool clips, bool gathers) {
    return failure_of(2, [&](launch::Job& job) {
      launch::Accelerator accelerator(job, options);
      Regression net, other;
      nn::SGD sgd(net.parameters(), {.lr = 0.05});
      data::DataLoader loader(line(18), {.batch_size = 4});
      auto [training, model, optimizer] = accelerator.prepare(loader, net, sgd);
      if (clips) static_cast<void>(training.next());
      const auto joined = accelerator.join_uneven_inputs({model}, false);
      for (const data::Batch& batch : training) {
        accelerator.backward(squared(model(batch.x), batch.y));
        if (gathers) accelerator.reduce(batch.x);
        optimizer.step();
        optimizer.zero_grad();
      }
    });
  };
  CHECK(of({}, false, false) == "no Error");
  for (const char* strategy : {"zero1", "zero2", "fsdp"}) {
    CHECK(of({.strategy = strategy}, false, false).find("take 'ddp', or even_batches") !=
          std::string::npos);
  }
  CHECK(of({.mixed_precision = "fp16"}, false, false).find("take 'bf16'") != std::string::npos);
  CHECK(of({}, true, false).find("enter the context between epochs") != std::string::npos);
  CHECK(of({}, false, true).find("what ranks without a batch do") != std::string::npos);
}
