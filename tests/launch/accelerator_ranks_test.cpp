// SPDX-License-Identifier: Apache-2.0
// The Accelerator: what ranks do together beside training, and runs that go on where they stopped.
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/failure_words.h>
#include <peal/autograd/core/out_of_memory.h>
#include <peal/comm/group/agree.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <new>
#include <string>

#include "accelerator_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

data::DatasetRef numbers(std::int64_t n) {
  Numbers x;
  for (std::int64_t i = 0; i < n; ++i) x.push_back(static_cast<double>(i));
  return std::make_shared<data::TensorDataset>(Tensor::from(x, {n}, Device{}));
}

}  // namespace

TEST_CASE("gather_for_metrics gives each sample once, whatever the numbers are") {
  for (const int world : {1, 2, 3}) {
    for (const auto& [n, batch] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {1, 5}, {9, 5}, {30, 4}, {33, 1}, {97, 16}, {99, 16}, {512, 16}}) {
      const auto found = on_ranks(world, [n = n, batch = batch](launch::Job& job) {
        launch::Accelerator accelerator(job);
        data::DataLoader loader(numbers(n), {.batch_size = batch});
        auto test = accelerator.prepare(loader);
        Numbers all;
        for (const data::Batch& each : test) {
          for (const double v : accelerator.gather_for_metrics(each.x).to_vector<double>()) {
            all.push_back(v);
          }
        }
        return all;
      });
      for (const Numbers& all : found) {
        CAPTURE(world);
        CAPTURE(n);
        REQUIRE(std::ssize(all) == n);
        for (std::int64_t i = 0; i < n; ++i) CHECK(all[static_cast<std::size_t>(i)] == i);
      }
    }
  }
  CHECK(failure_of(2, [](launch::Job& job) {
          launch::Accelerator accelerator(job);
          data::DataLoader loader(numbers(9), {.batch_size = 5});
          auto test = accelerator.prepare(loader);
          for (const data::Batch& each : test) accelerator.gather_for_metrics(mean(each.x));
        }).find("expected a row for each sample") != std::string::npos);
}

TEST_CASE("a loader within a loader has an end of its own, and then the outer one goes on") {
  for (const int world : {1, 2, 3}) {
    CAPTURE(world);
    const auto found = on_ranks(world, [](launch::Job& job) {
      launch::Accelerator accelerator(job);
      data::DataLoader loader(numbers(13), {.batch_size = 4}),
          other(numbers(19), {.batch_size = 4});
      auto [outer, inner] = accelerator.prepare(loader, other);
      std::pair<Numbers, Numbers> all;
      const auto add = [&](Numbers& to, const data::Batch& batch) {
        for (const double v : accelerator.gather_for_metrics(batch.x).to_vector<double>())
          to.push_back(v);
      };
      for (const data::Batch& batch : outer) {
        const std::size_t before = all.second.size();
        for (const data::Batch& each : inner) add(all.second, each);
        PEAL_CHECK(all.second.size() == before + 19, "the inner loader did not begin anew");
        add(all.first, batch);
      }
      return all;
    });
    for (const auto& [outer, inner] : found) {
      REQUIRE(outer.size() == 13);
      for (std::size_t i = 0; i < outer.size(); ++i) CHECK(outer[i] == static_cast<double>(i));
      for (std::size_t i = 0; i < inner.size(); ++i) CHECK(inner[i] == static_cast<double>(i % 19));
    }
  }
}

TEST_CASE("as many saved states stay as the limit says, and the newest is gone on from") {
  const Folder folder;
  const auto run = [&](bool goes_on) {
    return on_ranks(2, [&](launch::Job& job) {
      launch::Accelerator accelerator(job, {.project_dir = folder.path.string(), .total_limit = 2});
      Regression net;
      auto model = accelerator.prepare(net);
      const auto first = [&]() -> double& { return net.parameters()[0].data<double>()[0]; };
      if (goes_on) accelerator.load_state();
      const double found = first();
      for (int more = 0; more < (goes_on ? 1 : 4); ++more) {
        first() = goes_on ? 9 : more;
        accelerator.save_state();
      }
      return found;
    });
  };
  const auto files = [&] {
    std::int64_t all = 0;
    for (const auto& each : std::filesystem::recursive_directory_iterator(folder.path))
      all += each.path().extension() == ".safetensors";
    return all;
  };
  run(false);
  CHECK(files() == 2);
  CHECK(run(true) == Numbers(2, 3));
  CHECK(files() == 2);
  CHECK(run(true) == Numbers(2, 9));
}

TEST_CASE("ranks gather, reduce, pad and share out") {
  on_ranks(2, [](launch::Job& job) {
    launch::Accelerator accelerator(job);
    const bool first = accelerator.is_main_process();
    const Tensor mine = Tensor::from(first ? Numbers{1, 2} : Numbers{3, 4}, {2}, Device{});
    CHECK(accelerator.gather(mine).to_vector<double>() == Numbers{1, 2, 3, 4});
    CHECK(accelerator.gather(sum(mine)).to_vector<double>() == Numbers{3, 7});
    CHECK(accelerator.reduce(mine).to_vector<double>() == Numbers{4, 6});
    CHECK(accelerator.reduce(mine, comm::ReduceOp::avg).to_vector<double>() == Numbers{2, 3});
    CHECK(accelerator.reduce(mine, comm::ReduceOp::max).to_vector<double>() == Numbers{3, 4});
    const Tensor longer =
        Tensor::from(first ? Numbers{1} : Numbers{3, 4}, {first ? 1 : 2}, Device{});
    CHECK(accelerator.gather(accelerator.pad_across_processes(longer)).to_vector<double>() ==
          Numbers{1, 0, 3, 4});
    const std::vector<std::string> all{"A", "B", "C"};
    CHECK(accelerator.split_between_processes(all, true) ==
          (first ? std::vector<std::string>{"A", "B"} : std::vector<std::string>{"C", "C"}));
    if (!first) accelerator.set_trigger();
    CHECK(accelerator.check_trigger());
    CHECK(!accelerator.check_trigger());
    accelerator.wait_for_everyone();
    return 0;
  });
}

TEST_CASE("a profile is of this rank's ops while it runs, and a file of each") {
  const Folder folder;
  on_ranks(2, [&](launch::Job& job) {
    launch::Accelerator accelerator(job);
    const auto outside = context().trace;
    const Tensor x = ones({3, 3});
    {
      auto profile = accelerator.profile({.output_trace_dir = folder.path / "profiles"});
      for (int step = 0; step < 2; ++step) {
        exp(x);
        profile.step();
      }
      profile.stop();
      log(x);  // which counts no more
      CHECK(context().trace == outside);
      const auto rows = profile.trace().rows();
      const auto of = [&](const std::string& name) {
        return std::find_if(rows.begin(), rows.end(),
                            [&](const auto& r) { return r.name == name; });
      };
      REQUIRE(of("exp") != rows.end());
      CHECK(of("exp")->forward.calls == 2);
      CHECK(of("log") == rows.end());
    }
    CHECK(std::filesystem::file_size(
              folder.path / "profiles" /
              ("profile_" + std::to_string(accelerator.process_index()) + ".json")) > 0);
    std::ofstream(folder.path / "no_folder") << "a file";
    accelerator.wait_for_everyone();
    auto nowhere = accelerator.profile({.output_trace_dir = folder.path / "no_folder" / "below"});
    CHECK_THROWS_AS(nowhere.stop(), Error);
    CHECK(context().trace == outside);
    auto outer = accelerator.profile(), inner = accelerator.profile();
    check_has(error_of([&] { outer.stop(); }), "another runs; stop that one first");
    CHECK(context().trace.get() == &inner.trace());
    inner.stop();
    exp(x);  // which counts, as it still runs
    outer.stop();
    REQUIRE(outer.trace().rows().size() == 1);
    CHECK(outer.trace().rows()[0].name == "exp");
    CHECK(context().trace == outside);
    return 0;
  });
}

TEST_CASE("the main process is first, and its failure is everybody's") {
  std::atomic<int> done{0};
  on_ranks(3, [&](launch::Job& job) {
    launch::Accelerator accelerator(job);
    const int place = accelerator.main_process_first([&] { return done++; });
    CHECK((place == 0) == accelerator.is_main_process());
    accelerator.local_main_process_first([&] { ++done; });
    return 0;
  });
  CHECK(done == 6);
  CHECK(failure_of(2, [](launch::Job& job) {
          launch::Accelerator accelerator(job);
          accelerator.local_main_process_first([] { throw Error("no disk"); });
        }).find("no disk") != std::string::npos);
}

TEST_CASE("where memory runs out on one rank, all try the same smaller batch") {
  const auto tried = on_ranks(2, [](launch::Job& job) {
    std::vector<std::int64_t> sizes;
    launch::find_executable_batch_size(job.group(), 128, [&](std::int64_t size) {
      sizes.push_back(size);
      if (job.rank() == 1 && size > 90) throw std::bad_alloc();
    });
    return sizes;
  });
  CHECK(tried[0] == std::vector<std::int64_t>{128, 115, 103, 92, 82});
  CHECK(tried[1] == tried[0]);
}

TEST_CASE("where it runs out in what ranks do together, all try a smaller batch as well") {
  // As wrappers and prepare() do: what one rank finds is everybody's Error.
  const auto tried = on_ranks(3, [](launch::Job& job) {
    std::vector<std::int64_t> sizes;
    launch::find_executable_batch_size(job.group(), 128, [&](std::int64_t size) {
      sizes.push_back(size);
      std::string wrong;
      try {
        if (job.rank() > 0 && size > 100) throw OutOfMemory("cuda: none is left");
        if (job.rank() == 1 && size > 90) throw std::bad_alloc();
      } catch (...) {
        wrong = words_of_failure();
      }
      comm::agree_unless(job.group(), "a model", "", wrong, "");
    });
    return sizes;
  });
  for (const auto& sizes : tried) CHECK(sizes == std::vector<std::int64_t>{128, 115, 103, 92, 82});
  // Something else is wrong, too: nothing is tried again.
  const std::string words = failure_of(2, [](launch::Job& job) {
    launch::find_executable_batch_size(job.group(), 128, [&](std::int64_t) {
      comm::agree_unless(job.group(), "a model", "",
                         job.rank() == 0 ? "out of memory: none is left" : "it has no layer", "");
    });
  });
  CHECK(words.find("a model") != std::string::npos);
}

TEST_CASE("a run that goes on from a saved state is the one that did not stop") {
  for (const char* strategy : {"ddp", "zero1", "zero2", "fsdp"}) {
    CAPTURE(strategy);
    const Folder folder;
    // Five batches of an epoch of six, and then the rest of two epochs.
    const auto run = [&](launch::Job& job, bool stop, bool go_on) {
      launch::Accelerator accelerator(
          job, {.strategy = strategy, .project_dir = folder.path.string(), .total_limit = 2});
      Regression net;
      nn::AdamW adam(net.named_parameters(), {.lr = 0.01});
      nn::StepLR schedule(adam, 3, 0.9);
      data::DataLoader loader(line(48), {.batch_size = 4, .shuffle = true, .seed = 3});
      auto [model, optimizer, training, scheduler] =
          accelerator.prepare(net, adam, loader, schedule);
      int batches = 0;
      if (go_on) accelerator.load_state();
      while (training.epoch() < 2) {
        for (const data::Batch& batch : training) {
          const auto turn = accelerator.accumulate(model);
          accelerator.backward(squared(model(dropout(batch.x, 0.1, true)), batch.y));
          optimizer.step();
          scheduler.step();
          optimizer.zero_grad();
          if (++batches == 5 && stop) {
            accelerator.save_state();
            return values_of(model);
          }
        }
      }
      return values_of(model);
    };
    const auto whole = on_ranks(2, [&](launch::Job& job) { return run(job, false, false); });
    on_ranks(2, [&](launch::Job& job) { return run(job, true, false); });
    const auto resumed = on_ranks(2, [&](launch::Job& job) { return run(job, false, true); });
    CHECK(farthest(whole[0], resumed[0]) < 1e-12);
    CHECK(resumed[0] == resumed[1]);
  }
}

TEST_CASE("what is registered is saved and loaded beside what is prepared, each by itself") {
  struct Counter {
    double count = 0;
    NamedTensors state_dict() const { return {{"count", Tensor::scalar(count, Device{})}}; }
    void load_state_dict(const NamedTensors& state) { count = state.at(0).second.item<double>(); }
  };
  const Folder folder;
  const auto run = [&](bool goes_on) {
    return on_ranks(2, [&](launch::Job& job) {
      launch::Accelerator accelerator(job, {.project_dir = folder.path.string()});
      Regression net;
      auto model = accelerator.prepare(net);
      CHECK(accelerator.unwrap_model(model).same_as(net));
      Counter first{goes_on ? 0.0 : 3.0}, second{goes_on ? 0.0 : 5.0};
      accelerator.register_for_checkpointing(first);
      accelerator.register_for_checkpointing(second);
      if (goes_on) {
        accelerator.load_state();
      } else {
        accelerator.save_state();
      }
      return Numbers{first.count, second.count};
    });
  };
  run(false);
  CHECK(run(true) == std::vector<Numbers>(2, {3, 5}));
}

TEST_CASE("ranks with different numbers of batches go on in the same epoch") {
  // Of five batches rank 0 has three and rank 1 two, after which the state is saved.
  const Folder folder;
  const std::string file = folder.path / "after_2";
  const auto run = [&](bool goes_on) {
    return on_ranks(2, [&](launch::Job& job) {
      launch::Accelerator accelerator(job, {.even_batches = false});
      Regression net;
      data::DataLoader loader(line(20), {.batch_size = 4, .shuffle = true, .seed = 3});
      auto [training, model] = accelerator.prepare(loader, net);
      if (goes_on) {
        accelerator.load_state(file);
        CHECK(training.epoch() == 0);
        accelerator.skip_first_batches(training, 2);
      }
      Numbers seen;
      for (int epoch = 0; epoch < 2; ++epoch) {
        std::int64_t batches = 0;
        for (const data::Batch& batch : training) {
          ++batches;
          if (epoch > 0 || goes_on || batches > 2) {
            for (const double each : batch.y.to_vector<double>()) seen.push_back(each);
          }
          if (epoch == 0 && batches == 2 && !goes_on) accelerator.save_state(file);
        }
      }
      CHECK(training.epoch() == 2);
      return seen;
    });
  };
  const auto whole = run(false);
  CHECK(whole[0].size() == 16);
  CHECK(whole[1].size() == 8);
  CHECK(run(true) == whole);
}
