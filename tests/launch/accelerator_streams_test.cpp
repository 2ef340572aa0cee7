// SPDX-License-Identifier: Apache-2.0
// The Accelerator over streams and dispatchers: their ends are known, what is found is gathered,
// ranks train as one, and runs go on where they stopped. And ReduceLROnPlateau of several ranks.
#include <peal/nn/checkpoint.h>
#include <peal/tests/folder.h>

#include "accelerator_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

// Part p has lengths[p] samples, 100 p + k of it.
struct NumberParts : data::StreamDataset {
  explicit NumberParts(std::vector<std::int64_t> n) : lengths(std::move(n)) {}
  std::int64_t parts() const override { return std::ssize(lengths); }
  Reader read(std::int64_t part, std::int64_t from, const data::Draws&) const override {
    const std::int64_t end = lengths[static_cast<std::size_t>(part)];
    return [=, k = from]() mutable -> std::optional<data::Batch> {
      if (k >= end) return std::nullopt;
      const double x = static_cast<double>((100 * part + k++) * 37 % 41) / 20 - 1;
      return data::Batch{Tensor::from(Numbers{x}, {1, 1}, Device{}),
                         Tensor::from(Numbers{2 * x + 3}, {1, 1}, Device{})};
    };
  }
  std::vector<std::int64_t> lengths;
};

std::shared_ptr<NumberParts> parts_of(std::vector<std::int64_t> lengths) {
  return std::make_shared<NumberParts>(std::move(lengths));
}

// The batches of 0, 1, ..., n - 1, again and again.
std::function<std::optional<data::Batch>()> counting(std::int64_t n, std::int64_t batch) {
  return [=, next = std::int64_t{0}]() mutable -> std::optional<data::Batch> {
    Numbers x;
    for (; next < n && std::ssize(x) < batch; ++next) x.push_back(static_cast<double>(next));
    if (x.empty()) {
      next = 0;
      return std::nullopt;
    }
    return data::Batch{Tensor::from(x, {std::ssize(x), 1}, Device{}), {}};
  };
}

data::DatasetRef count(std::int64_t n) {
  Numbers x;
  for (std::int64_t i = 0; i < n; ++i) x.push_back(static_cast<double>(i));
  return std::make_shared<data::TensorDataset>(Tensor::from(x, {n, 1}, Device{}));
}

launch::Dispatcher dispatcher_of(launch::Job& job, bool stream, std::int64_t n,
                                 std::int64_t batch) {
  const bool reads = job.is_main();
  if (!stream) {
    return {job.group(), reads ? count(n) : nullptr, {.batch_size = batch}};
  }
  return launch::Dispatcher::of_stream(
      job.group(), reads ? counting(n, batch) : std::function<std::optional<data::Batch>()>());
}

}  // namespace

TEST_CASE("what is found of a dispatcher's batches is gathered, each sample once") {
  for (const int world : {1, 2, 3}) {
    for (const bool stream : {false, true}) {
      for (const auto& [n, batch] :
           std::vector<std::pair<std::int64_t, std::int64_t>>{{30, 4}, {21, 3}, {2, 3}, {24, 2}}) {
        const auto found = on_ranks(world, [&, n = n, batch = batch](launch::Job& job) {
          launch::Accelerator accelerator(job);
          launch::Dispatcher dispatcher = dispatcher_of(job, stream, n, batch);
          auto test = accelerator.prepare(dispatcher);
          Numbers all;
          for (int epoch = 0; epoch < 2; ++epoch) {
            for (const data::Batch& each : test) {
              for (const double v : accelerator.gather_for_metrics(each.x).to_vector<double>()) {
                all.push_back(v);
              }
            }
          }
          return all;
        });
        for (const Numbers& all : found) {
          CAPTURE(world);
          CAPTURE(stream);
          CAPTURE(n);
          REQUIRE(std::ssize(all) == 2 * n);
          for (std::int64_t i = 0; i < 2 * n; ++i) CHECK(all[static_cast<std::size_t>(i)] == i % n);
        }
      }
    }
  }
}

TEST_CASE("the end of a dispatched epoch is a step") {
  for (const bool stream : {false, true}) {
    const auto found = on_ranks(2, [&](launch::Job& job) {
      launch::Accelerator accelerator(job, {.gradient_accumulation_steps = 4});
      Regression net;
      launch::Dispatcher dispatcher = dispatcher_of(job, stream, 24, 2);  // six batches a rank
      auto [training, model] = accelerator.prepare(dispatcher, net);
      std::string steps;
      for (int epoch = 0; epoch < 2; ++epoch) {
        while (const auto batch = training.next()) {
          const auto turn = accelerator.accumulate(model);
          steps += accelerator.sync_gradients() ? "1" : "0";
          accelerator.backward(mean(model(batch->x)));
          if (accelerator.sync_gradients()) model.zero_grad();
        }
      }
      CHECK(training.epoch() == 2);
      return steps;
    });
    CHECK(found[0] == "000101000101");
    CHECK(found[1] == found[0]);
  }
}

TEST_CASE("a stream's ranks train as one does on their batches, however many each has") {
  for (const std::int64_t steps : {1, 2}) {
    for (const int world : {1, 2, 3}) {
      struct End {
        Numbers values;
        std::vector<Tensor> x;
      };
      const auto found = on_ranks(world, [&](launch::Job& job) {
        launch::Accelerator accelerator(job, {.gradient_accumulation_steps = steps});
        Regression net;
        nn::AdamW adam(net.named_parameters(), {.lr = 0.01});
        data::StreamLoader loader(parts_of({11, 2, 4}), {.batch_size = 2, .place = job.place()});
        auto [model, optimizer, training] = accelerator.prepare(net, adam, loader);
        End end;
        const auto joined = accelerator.join_uneven_inputs({model});
        for (const data::Batch& batch : training) {
          end.x.push_back(batch.x);
          const auto turn = accelerator.accumulate(model);
          accelerator.backward(squared(model(batch.x), batch.y));
          optimizer.step();
          optimizer.zero_grad();
        }
        end.values = values_of(model);
        return end;
      });
      Regression net;
      nn::AdamW adam(net.named_parameters(), {.lr = 0.01});
      std::size_t turns = 0;
      for (const End& end : found) turns = std::max(turns, end.x.size());
      std::vector<Tensor> step;
      for (std::size_t turn = 0; turn < turns; ++turn) {
        for (const End& end : found) {
          if (turn < end.x.size()) step.push_back(end.x[turn]);
        }
        if ((turn + 1) % static_cast<std::size_t>(steps) != 0 && turn + 1 < turns) continue;
        const Tensor x = cat(step);
        adam.zero_grad();
        squared(net(x), x * 2.0 + 3.0).backward();
        adam.step();
        step.clear();
      }
      for (const End& end : found) {
        CAPTURE(world);
        CAPTURE(steps);
        CHECK(farthest(values_of(net), end.values) < 1e-10);
      }
    }
  }
}

TEST_CASE("a stream, and a dispatcher of one or of a set, goes on where a saved state was") {
  enum class Kind { set, source, stream };
  for (const Kind kind : {Kind::set, Kind::source, Kind::stream}) {
    CAPTURE(static_cast<int>(kind));
    const Folder folder;
    const auto run = [&](launch::Job& job, int stop_after, bool go_on) {
      launch::Accelerator accelerator(job, {.project_dir = folder.path.string()});
      std::optional<launch::Dispatcher> dispatcher;
      std::optional<data::StreamLoader> loader;
      if (kind == Kind::stream) {
        loader.emplace(parts_of({9, 7, 8}),
                       data::StreamLoaderOptions{.batch_size = 2, .place = job.place()});
      } else {
        dispatcher.emplace(dispatcher_of(job, kind == Kind::source, 30, 3));
      }
      auto training = loader ? accelerator.prepare(*loader) : accelerator.prepare(*dispatcher);
      if (go_on) accelerator.load_state();
      Numbers all;
      for (const data::Batch& batch : training) {
        for (const double v : batch.x.to_vector<double>()) all.push_back(v);
        if (--stop_after == 0) {
          accelerator.save_state();
          break;
        }
      }
      return all;
    };
    const auto whole = on_ranks(2, [&](launch::Job& job) { return run(job, -1, false); });
    auto parts = on_ranks(2, [&](launch::Job& job) { return run(job, 2, false); });
    const auto rest = on_ranks(2, [&](launch::Job& job) { return run(job, -1, true); });
    for (std::size_t r = 0; r < 2; ++r) {
      CHECK(!rest[r].empty());
      parts[r].insert(parts[r].end(), rest[r].begin(), rest[r].end());
      CHECK(parts[r] == whole[r]);
    }
  }
}

TEST_CASE("a stream that each rank would read whole, or whose order nobody knows, is an Error") {
  CHECK(failure_of(2, [](launch::Job& job) {
          launch::Accelerator accelerator(job);
          data::StreamLoader loader(parts_of({4}));
          static_cast<void>(accelerator.prepare(loader));
        }).find("make it with .place = job.place()") != std::string::npos);
  CHECK(failure_of(2, [](launch::Job& job) {
          launch::Accelerator accelerator(job);
          data::StreamLoader loader(parts_of({4, 4}), {.place = job.place()});
          auto stream = accelerator.prepare(loader);
          accelerator.gather_for_metrics(stream.next()->x);
        }).find("have different numbers of batches") != std::string::npos);
}

TEST_CASE("a plateau is one step of any number of ranks, of one measure") {
  for (const int world : {1, 2}) {
    const auto rates = on_ranks(world, [](launch::Job& job) {
      launch::Accelerator accelerator(job);
      Regression net;
      nn::SGD sgd(net.parameters(), {.lr = 1});
      nn::ReduceLROnPlateau plateau(sgd, {.factor = 0.5, .patience = 1});
      auto [model, optimizer, scheduler] = accelerator.prepare(net, sgd, plateau);
      Numbers all;
      for (const double measure : {3.0, 3.0, 3.0, 2.0}) {
        scheduler.step(measure);
        all.push_back(optimizer.lr());
      }
      return all;
    });
    for (const Numbers& each : rates) CHECK(each == Numbers{1, 1, 0.5, 0.5});
  }
  CHECK(failure_of(2, [](launch::Job& job) {
          launch::Accelerator accelerator(job);
          Regression net;
          nn::SGD sgd(net.parameters(), {.lr = 1});
          nn::ReduceLROnPlateau plateau(sgd);
          auto [model, optimizer, scheduler] = accelerator.prepare(net, sgd, plateau);
          scheduler.step(0.25 + job.rank());
        }).find("the measure is '0.25' on rank 0 and '1.25' on rank 1") != std::string::npos);
}

TEST_CASE("streams and plateaus that were freed are in no state after that") {
  const Folder folder;
  on_ranks(2, [&](launch::Job& job) {
    launch::Accelerator accelerator(job);
    Regression net, other;
    nn::SGD sgd(net.parameters(), {.lr = 1}), other_sgd(other.parameters(), {.lr = 1});
    nn::ReduceLROnPlateau plateau(sgd);
    data::StreamLoader loader(parts_of({9, 7}), {.place = job.place()}),
        other_loader(parts_of({4, 4}), {.place = job.place()});
    { const auto freed = accelerator.prepare(net, sgd, plateau, loader); }
    accelerator.save_state((folder.path / "before").string());
    accelerator.free_memory();
    const auto prepared = accelerator.prepare(other, other_sgd, other_loader);
    accelerator.save_state((folder.path / "after").string());
    return 0;
  });
  const nn::CheckpointFile before(folder.path / "before"), after(folder.path / "after");
  CHECK(before.has("plateau"));
  CHECK(before.has("stream_0"));
  CHECK(!after.has("plateau"));
  CHECK(after.has("stream_0"));
  CHECK(!after.has("stream_1"));
}
