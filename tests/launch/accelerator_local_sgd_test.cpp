// SPDX-License-Identifier: Apache-2.0
// LocalSGD under the Accelerator: ranks train as models of their own do, whose parameters are
// averaged every few batches and at the end.
#include <peal/launch/training/accelerator/local_sgd.h>
#include <peal/tests/errors.h>

#include <optional>

#include "accelerator_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

struct Apart {
  std::int64_t n = 48, batch = 4, every = 4, steps = 1;
  double momentum = 0.9;
  bool enabled = true;
};

std::vector<Numbers> train_apart(int world, const Apart& run) {
  return on_ranks(world, [&](launch::Job& job) {
    launch::Accelerator accelerator(
        job, {.gradient_accumulation_steps = run.steps, .even_batches = false});
    Regression net;
    nn::SGD sgd(net.parameters(), {.lr = 0.05, .momentum = run.momentum});
    data::DataLoader loader(line(run.n), {.batch_size = run.batch});
    auto [training, model, optimizer] = accelerator.prepare(loader, net, sgd);
    launch::LocalSGD local_sgd(accelerator, model, run.every, run.enabled);
    for (const data::Batch& batch : training) {
      const auto turn = accelerator.accumulate(model);
      accelerator.backward(squared(model(batch.x), batch.y));
      optimizer.step();
      optimizer.zero_grad();
      local_sgd.step();
    }
    local_sgd.end();
    return values_of(model);
  });
}

// Models side by side in one thread, batch k of model k mod world.
Numbers side_by_side(int world, const Apart& run) {
  std::vector<Regression> nets(static_cast<std::size_t>(world));
  std::vector<std::unique_ptr<nn::SGD>> optimizers;
  for (Regression& net : nets) {
    optimizers.push_back(std::make_unique<nn::SGD>(
        net.parameters(), nn::SGDOptions{.lr = 0.05, .momentum = run.momentum}));
  }
  const auto average = [&] {
    for (std::size_t p = 0; p < nets[0].parameters().size(); ++p) {
      for (std::int64_t i = 0; i < nets[0].parameters()[p].numel(); ++i) {
        double sum = 0;
        for (Regression& net : nets) sum += net.parameters()[p].data<double>()[i];
        for (Regression& net : nets) net.parameters()[p].data<double>()[i] = sum / world;
      }
    }
  };
  // Batches of a step together are one.
  const data::DatasetRef all = line(run.n);
  data::DataLoader loader(all, {.batch_size = run.batch});
  std::vector<std::vector<data::Batch>> of(nets.size());
  std::size_t k = 0;
  for (const data::Batch& batch : loader) of[k++ % nets.size()].push_back(batch);
  for (std::size_t b = 0; b < of[0].size(); ++b) {
    const auto steps = static_cast<std::size_t>(run.steps);
    for (std::size_t r = 0; r < nets.size(); ++r) {
      if ((b + 1) % steps != 0 && b + 1 != of[r].size()) continue;
      std::vector<Tensor> x, y;
      for (std::size_t j = b / steps * steps; j <= b; ++j) {
        x.push_back(of[r][j].x);
        y.push_back(of[r][j].y);
      }
      optimizers[r]->zero_grad();
      squared(nets[r](cat(x)), cat(y)).backward();
      optimizers[r]->step();
    }
    if ((b + 1) % static_cast<std::size_t>(run.every) == 0) average();
  }
  average();
  return values_of(nets[0]);
}

void check_side_by_side(int world, const Apart& run) {
  const Numbers expected = side_by_side(world, run);
  for (const Numbers& found : train_apart(world, run)) {
    CAPTURE(world);
    CAPTURE(run.every);
    CAPTURE(run.steps);
    CHECK(farthest(expected, found) < 1e-10);
  }
}

}  // namespace

TEST_CASE("ranks that train apart are models side by side, averaged every few batches") {
  check_side_by_side(2, {});  // six batches each
  check_side_by_side(2, {.every = 3});
  check_side_by_side(3, {.every = 100});
  check_side_by_side(2, {.every = 1, .momentum = 0});
  check_side_by_side(1, {});
}

TEST_CASE("a step of several batches counts their samples, of this rank alone") {
  check_side_by_side(2, {.every = 2, .steps = 2});
  check_side_by_side(2, {.n = 46, .every = 4, .steps = 4});  // rank 1's last batch has two
}

TEST_CASE("without momentum an average of each batch is that of gradients, and so it is disabled") {
  const Apart each{.every = 1, .momentum = 0};
  const auto found = train_apart(2, each);
  const auto plain = train_apart(2, {.every = 1, .momentum = 0, .enabled = false});
  CHECK(farthest(found[0], plain[0]) < 1e-10);
  CHECK(train_apart(2, {.enabled = false})[0] != train_apart(2, {})[0]);
}

TEST_CASE(
    "between two averages ranks differ, after the last they are equal, and then train as one") {
  const auto found = on_ranks(2, [](launch::Job& job) {
    launch::Accelerator accelerator(job);
    Regression net;
    nn::SGD sgd(net.parameters(), {.lr = 0.05});
    auto [model, optimizer] = accelerator.prepare(net, sgd);
    const auto step = [&] {
      const Tensor x = full({2, 1}, job.rank() + 1.0, DType::f64);
      accelerator.backward(mean(model(x)));
      optimizer.step();
      optimizer.zero_grad();
    };
    std::vector<Numbers> all;
    {
      launch::LocalSGD local_sgd(accelerator, model, 2);
      for (int batch = 0; batch < 3; ++batch) {
        step();
        local_sgd.step();
        all.push_back(values_of(model));
      }
    }
    all.push_back(values_of(model));
    step();
    all.push_back(values_of(model));
    return all;
  });
  CHECK(found[0][0] != found[1][0]);
  CHECK(found[0][1] == found[1][1]);
  CHECK(found[0][2] != found[1][2]);
  CHECK(found[0][3] == found[1][3]);
  CHECK(found[0][4] == found[1][4]);
  CHECK(found[0][4] != found[0][3]);
}

TEST_CASE("LocalSGD that makes no sense is an Error on all ranks") {
  const auto of = [](const std::string& strategy, std::int64_t steps, bool twice, bool differ) {
    return failure_of(2, [&](launch::Job& job) {
      launch::Accelerator accelerator(job, {.strategy = strategy});
      Regression net;
      nn::SGD sgd(net.parameters(), {.lr = 0.05});
      auto [model, optimizer] = accelerator.prepare(net, sgd);
      launch::LocalSGD local_sgd(accelerator, model, steps + (differ ? job.rank() : 0));
      if (twice) launch::LocalSGD again(accelerator, model, steps);
    });
  };
  CHECK(of("ddp", 2, false, false) == "no Error");
  for (const char* strategy : {"zero1", "zero2", "fsdp"}) {
    CHECK(of(strategy, 2, false, false).find("take 'ddp'") != std::string::npos);
  }
  CHECK(of("ddp", 0, false, false).find("1 or more batches, got 0") != std::string::npos);
  CHECK(of("ddp", 2, true, false).find("in another LocalSGD already") != std::string::npos);
  CHECK(of("ddp", 2, false, true).find("give all ranks the same") != std::string::npos);
}

TEST_CASE("LocalSGD ends between steps, and where it is left within one ranks are equal too") {
  for (const bool ends : {true, false}) {
    const auto found = on_ranks(2, [&](launch::Job& job) {
      launch::Accelerator accelerator(job, {.gradient_accumulation_steps = 2});
      Regression net;
      nn::SGD sgd(net.parameters(), {.lr = 0.05});
      auto [model, optimizer] = accelerator.prepare(net, sgd);
      const auto batch = [&] {
        const auto turn = accelerator.accumulate(model);
        accelerator.backward(mean(model(full({2, 1}, job.rank() + 1.0, DType::f64))));
        optimizer.step();
        optimizer.zero_grad();
      };
      std::optional<launch::LocalSGD> local_sgd;
      local_sgd.emplace(accelerator, model, 100);
      for (int each = 0; each < 3; ++each) batch();
      if (ends) {
        check_has(error_of([&] { local_sgd->end(); }), "a step is under way");
        batch();
        local_sgd->end();
      }
      local_sgd.reset();
      return values_of(model);
    });
    CHECK(found[0] == found[1]);
  }
}
