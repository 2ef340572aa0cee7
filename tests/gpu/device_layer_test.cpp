// SPDX-License-Identifier: Apache-2.0
// Memory, streams, events, graphs and faults of a CUDA device: on a GPU, and on the host.
#include <peal/autograd/core/cuda/allocator.h>
#include <peal/autograd/core/cuda/device.h>
#include <peal/autograd/core/graph.h>
#include <peal/autograd/core/out_of_memory.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/tape.h>

#include <peal/tests/autograd/arrays.h>
#include <peal/tests/errors.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace peal;
using testing::error_of;

namespace {

constexpr Device gpu{DeviceType::cuda, 0};

AllocatorStatistics statistics() { return memory_space(gpu).statistics(gpu); }

Tensor classes(std::vector<std::int64_t> values) {
  const auto n = static_cast<std::int64_t>(values.size());
  return Tensor::from(values, {n}, gpu);
}

}  // namespace

TEST_CASE("a released block goes back to its own stream, at once, and to no other") {
  const Stream first = Stream::create(gpu), second = Stream::create(gpu);
  const auto before = statistics();
  void* data = nullptr;
  {
    const StreamGuard guard(first);
    data = Tensor::empty({3000}, DType::f32, gpu).raw();
    CHECK(statistics().in_use == before.in_use);
    CHECK(Tensor::empty({3000}, DType::f32, gpu).raw() == data);
  }
  const StreamGuard guard(second);
  CHECK(Tensor::empty({3000}, DType::f32, gpu).raw() != data);
  CHECK(current_stream(gpu) == second);
}

TEST_CASE("a block that a second stream uses rests until that stream is done with it") {
  const Stream stream = Stream::create(gpu), other = Stream::create(gpu);
  const StreamGuard guard(stream);
  void* data = nullptr;
  {
    const Tensor x = full({1 << 20}, 1.0, DType::f32, gpu);
    data = x.raw();
    Event made;
    made.record(stream);
    other.wait(made);
    const StreamGuard inside(other);
    x.zero_();
    x.record_stream(other);
  }
  other.synchronize();
  // Now it may be used again: either it was woken here, or by the next allocation.
  Tensor next = Tensor::empty({1 << 20}, DType::f32, gpu);
  CHECK(next.raw() == data);
}

TEST_CASE("statistics count blocks, their peak, and what the cache holds") {
  memory_space(gpu).empty_cache(gpu);
  memory_space(gpu).reset_peak(gpu);
  const auto before = statistics();
  CHECK(before.peak == before.in_use);
  {
    const Tensor a = Tensor::empty({1 << 20}, DType::f32, gpu);
    CHECK(statistics().in_use == before.in_use + (4 << 20));
    const Tensor b = Tensor::empty({1 << 19}, DType::f32, gpu);
    CHECK(statistics().peak == before.in_use + (6 << 20));
  }
  CHECK(statistics().in_use == before.in_use);
  CHECK(statistics().cached == before.cached + (6 << 20));
  memory_space(gpu).empty_cache(gpu);
  CHECK(statistics().cached <= before.cached);
}

TEST_CASE("where a device has no memory left, the error says what is held") {
  const Tensor held = Tensor::empty({1 << 20}, DType::f32, gpu);
  const std::string error =
      error_of([] { Tensor::empty({std::int64_t{1} << 50}, DType::f32, gpu); });
  CHECK(
      error.find("cuda:0 has no memory left for 4294967296.0 MiB: tensors of this process hold ") !=
      std::string::npos);
  CHECK(error.find("make the batch smaller") != std::string::npos);
  CHECK_THROWS_AS(Tensor::empty({std::int64_t{1} << 50}, DType::f32, gpu), OutOfMemory);
  CHECK(error_of([] {
          Tensor::empty({1}, DType::f32, {DeviceType::cuda, 60});
        }).find("cuda:60 asked for, but only ") != std::string::npos);
  CHECK(held.numel() == 1 << 20);
}

TEST_CASE("another stream that waits for an event sees what was made before it") {
  const Stream first = Stream::create(gpu), second = Stream::create(gpu, true);
  Tensor x;
  Event made;
  {
    const StreamGuard guard(first);
    x = full({5000}, 3.0, DType::f32, gpu) * 2.0;
    made.record(first);
  }
  const StreamGuard guard(second);
  second.wait(made);
  const Tensor y = x + 1.0;
  CHECK(y.to_vector<float>() == std::vector<float>(5000, 7.0f));
  second.synchronize();
  CHECK(second.query());
  CHECK(made.query());
}

TEST_CASE("copies from page-locked memory need no wait") {
  const Tensor source = Tensor::pinned({1000});
  for (int i = 0; i < 1000; ++i) source.data<float>()[i] = static_cast<float>(i);
  const Tensor x = source.to(gpu, true), back = Tensor::pinned({1000});
  back.copy_(x * 2.0, true);
  Event copied;
  copied.record(current_stream(gpu));
  copied.synchronize();
  for (int i = 0; i < 1000; ++i) CHECK(back.data<float>()[i] == static_cast<float>(2 * i));
}

TEST_CASE("page-locked memory that is let go of rests until the copies from and to it are over") {
  const auto pinned = [](float value) {
    const Tensor x = Tensor::pinned({1 << 18});
    std::fill_n(x.data<float>(), 1 << 18, value);
    return x;
  };
  const std::vector<float> ones(1 << 18, 1.0f);
  const Stream side = Stream::create(gpu);
  {
    const StreamGuard guard(side);  // the CPU's next batch comes while the device is at this one
    const Tensor there = pinned(1).to(gpu, true);
    pinned(2);
    CHECK(there.to_vector<float>() == ones);
    for (int i = 0; i < 4; ++i) there.copy_(there * 1.5);
    pinned(3).copy_(there, true);
    const Tensor next = pinned(4);
    side.synchronize();
    CHECK(next.data<float>()[9] == 4);
  }
  // And then it is given out again.
  const void* first = pinned(5).raw();
  bool again = false;
  std::vector<Tensor> held;
  for (int i = 0; i < 8 && !again; ++i) {
    held.push_back(pinned(6));
    again = held.back().raw() == first;
  }
  CHECK(again);
}

TEST_CASE("a copy that a capture cannot have is refused by name") {
  Graph graph(gpu, 1);
  const Tensor ordinary = Tensor::zeros({4}, DType::f32, Device{}),
               there = full({4}, 1.0, DType::f32, gpu);
  const Tensor pinned = Tensor::pinned({4});
  std::fill_n(pinned.data<float>(), 4, 2.0f);
  graph.run([] {});
  const auto refused = [&](const std::function<void()>& f) {
    return error_of([&] { graph.run(f); }).find("this thread captures a graph") !=
           std::string::npos;
  };
  CHECK(refused([&] { there.copy_(ordinary, true); }));
  CHECK(refused([&] { there.copy_(pinned); }));
  CHECK(refused([&] { sum(there).item<float>(); }));
  graph.run([&] { there.copy_(pinned, true); });
  CHECK(graph.captured());
  CHECK(there.to_vector<float>() == std::vector<float>(4, 2.0f));
  std::fill_n(pinned.data<float>(), 4, 3.0f);
  graph.run([] {});
  CHECK(there.to_vector<float>() == std::vector<float>(4, 3.0f));
}

TEST_CASE("memory of another device is given out while a thread captures") {
  if (device_count(DeviceType::cuda) < 2) return;
  constexpr Device other{DeviceType::cuda, 1};
  const Stream side = Stream::create(other);
  Graph graph(gpu, 1);
  const Tensor x = full({4}, 1.0, DType::f32, gpu);
  Tensor y;
  for (int i = 0; i < 2; ++i) {
    graph.run([&] {
      Tensor::empty({1000}, DType::f32, other).record_stream(side);
      Tensor::empty({1000}, DType::f32, other);
      y = x * 3.0;
    });
  }
  CHECK(graph.captured());
  CHECK(y.to_vector<float>() == std::vector<float>(4, 3.0f));
}

TEST_CASE("a class out of range is told when the host next waits, and only once") {
  const Tensor x = log_softmax(full({3, 10}, 0.0, DType::f32, gpu), 1);
  const Tensor loss = nll_loss(x, classes({1, 12, 3}));
  const std::string error = error_of([&] { loss.item<float>(); });
  CHECK(error.find("an index or class of 12 came to an op on cuda:0, expected one in [0, 10)") !=
        std::string::npos);
  CHECK(nll_loss(x, classes({1, 2, 3})).item<float>() == doctest::Approx(std::log(10.0)));
  const Tensor weight = full({4, 2}, 1.0, DType::f32, gpu);
  CHECK(error_of([&] {
          embedding(classes({-1}), weight).to_vector<float>();
        }).find("class of -1") != std::string::npos);
}

TEST_CASE("ignored targets count for nothing, forward and backward, without a wait") {
  const std::vector<float> values{1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto gradient = [&](Device device, const std::vector<std::int64_t>& target,
                            double smoothing) {
    const Tensor x = Tensor::from(values, {3, 3}, device);
    x.set_requires_grad();
    const Tensor loss =
        cross_entropy(x, Tensor::from(target, {3}, device), Reduction::mean, 7, smoothing);
    loss.backward();
    std::vector<float> all = x.grad().to_vector<float>();
    all.push_back(loss.item<float>());
    return all;
  };
  for (const double smoothing : {0.0, 0.2}) {
    const auto here = gradient({}, {0, 7, 2}, smoothing),
               there = gradient(gpu, {0, 7, 2}, smoothing);
    for (std::size_t i = 0; i < here.size(); ++i) CHECK(there[i] == doctest::Approx(here[i]));
  }
  CHECK(std::isnan(gradient(gpu, {7, 7, 7}, 0).back()));
}

TEST_CASE("a replayed graph computes what calls would, random numbers too") {
  const auto train = [&](bool captured) {
    manual_seed(5);
    const Tensor w = full({64, 64}, 0.5, DType::f32, gpu);
    w.set_requires_grad();
    const Tensor x = Tensor::empty({8, 64}, DType::f32, gpu);
    Tensor loss;
    Graph graph(captured ? gpu : Device{});
    std::vector<float> losses;
    for (int step = 0; step < 6; ++step) {
      x.copy_(full({8, 64}, 1.0 + step, DType::f32, gpu));
      graph.run([&] {
        w.zero_grad();
        loss = mean(dropout(x * sum(w, {0}), 0.5, true));
        loss.backward();
      });
      const NoGrad guard;
      w.copy_(w - w.grad() * 0.01);
      losses.push_back(loss.item<float>());
      const auto drawn = uniform({3}, 0, 1, DType::f32, gpu).to_vector<float>();  // between replays
      losses.insert(losses.end(), drawn.begin(), drawn.end());
    }
    CHECK(graph.captured() == captured);
    const auto weights = w.to_vector<float>();
    losses.insert(losses.end(), weights.begin(), weights.end());
    losses.push_back(static_cast<float>(context().generator.offset));
    return losses;
  };
  CHECK(train(true) == train(false));
}

TEST_CASE("a step that waits for the device cannot be captured, and says so") {
  CHECK(error_of([] { Graph(gpu, 0); }) != "nothing");
  Graph graph(gpu, 1);
  const Tensor x = full({4}, 1.0, DType::f32, gpu);
  graph.run([&] { sum(x); });
  CHECK(error_of([&] { graph.run([&] { sum(x).item<float>(); }); }) != "nothing");
  CHECK(!graph.captured());
  // And all goes on.
  Tensor y;
  graph.run([&] { y = x * 3.0; });
  CHECK(graph.captured());
  CHECK(y.to_vector<float>() == std::vector<float>(4, 3.0f));
}

TEST_CASE("others wait for the device, and give memory back, while a thread captures") {
  const Stream mine = Stream::create(gpu);
  std::atomic<int> stage{0};
  std::string error;
  bool captured = false;
  std::thread other([&] {
    const StreamGuard own(Stream::create(gpu));
    const Tensor x = full({64}, 1.0, DType::f32, gpu);
    Graph graph(gpu, 1);
    Tensor y;
    graph.run([&] { y = x * 2.0; });
    error = error_of([&] {
      graph.run([&] {
        y = x * 2.0;
        stage = 1;
        while (stage != 2) std::this_thread::yield();
        y = y * 3.0;
      });
    });
    captured = graph.captured() && y.to_vector<float>() == std::vector<float>(64, 6.0f);
  });
  const StreamGuard guard(mine);
  const Tensor x = full({64}, 1.0, DType::f32, gpu);
  std::optional<Graph> gone(std::in_place, gpu, 1);
  for (int i = 0; i < 2; ++i) gone->run([&] { x.copy_(x * 2.0); });
  while (stage != 1) std::this_thread::yield();
  const std::string here = error_of([&] {
    synchronize(gpu);
    gone.reset();
    memory_space(gpu).empty_cache(gpu);
    CHECK(x.to_vector<float>() == std::vector<float>(64, 4.0f));
  });
  stage = 2;
  other.join();
  CHECK(here == "nothing");
  CHECK(error == "nothing");
  CHECK(captured);
}

TEST_CASE("what a graph had goes to the stream of its replays, and is not lost") {
  const Stream side = Stream::create(gpu), mine = Stream::create(gpu);
  const StreamGuard guard(mine);
  memory_space(gpu).empty_cache(gpu);
  const Tensor x = full({100}, 1.0, DType::f32, gpu);
  {
    Graph graph(gpu, 1);
    const auto step = [&] {
      const Tensor small = x + 1.0, large = full({5 << 20}, 2.0, DType::f32, gpu);
      large.record_stream(side);  // and released while it is captured
    };
    graph.run([] {});
    graph.run(step);
  }
  const Tensor next = Tensor::empty({1}, DType::f32, gpu);
  side.synchronize();
  const std::size_t before = statistics().from_system;
  const Tensor large = Tensor::empty({5 << 20}, DType::f32, gpu);
  std::vector<Tensor> rests;  // of the slab that the graph began
  for (int i = 0; i < 6; ++i) rests.push_back(Tensor::empty({75000}, DType::f32, gpu));
  CHECK(statistics().from_system == before);
}

TEST_CASE("what a graph made outlives it, and its memory follows the stream that replayed") {
  const Tensor x = full({1 << 18}, 1.0, DType::f32, gpu);
  Tensor y;
  {
    Graph graph(gpu, 1);
    for (int i = 0; i < 2; ++i) graph.run([&] { y = x * 5.0; });
  }
  const Tensor z = y + 1.0;  // not yet run
  y = Tensor();
  {
    const StreamGuard guard(Stream::create(gpu));  // the one that captured, used again
    const Tensor other = full({1 << 18}, 9.0, DType::f32, gpu);
    current_stream(gpu).synchronize();
    CHECK(other.to_vector<float>()[7] == 9.0f);
  }
  CHECK(z.to_vector<float>() == std::vector<float>(1 << 18, 6.0f));
}

TEST_CASE("what is out of memory counts tensors, and not the cache") {
  const auto blocks = [] {
    const std::string error =
        error_of([] { Tensor::empty({std::int64_t{1} << 50}, DType::f32, gpu); });
    const std::size_t at = error.find(" MiB in ");
    REQUIRE(at != std::string::npos);
    return std::stoi(error.substr(at + 8));
  };
  std::vector<Tensor> some;
  for (int i = 0; i < 5; ++i) some.push_back(Tensor::empty({100}, DType::f32, gpu));
  const int before = blocks();
  some.resize(2);
  CHECK(blocks() == before - 3);
}

TEST_CASE("a trace of a device has its times, by op and as a picture") {
  const auto trace = std::make_shared<Trace>(1000, gpu);
  context().trace = trace;
  const Tensor x = full({1000}, 2.0, DType::f32, gpu);
  x.set_requires_grad();
  mean(x * x).backward();
  context().trace = nullptr;
  std::int64_t calls = 0;
  for (const Trace::Row& row : trace->rows()) {
    CHECK(row.seconds() >= 0);
    calls += row.forward.calls;
    if (row.name == "mul") CHECK(row.backward.calls == 1);
  }
  CHECK(calls >= 2);
  const std::string picture = trace->json("test");
  CHECK(picture.find("\"tid\":\"cuda:0\"") != std::string::npos);
  CHECK(picture.find("\"name\":\"mul\"") != std::string::npos);
}
