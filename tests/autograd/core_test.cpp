// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/allocator.h>
#include <peal/autograd/core/graph.h>
#include <peal/autograd/core/log.h>
#include <peal/autograd/core/stream.h>
#include <peal/autograd/core/told_here.h>
#include <peal/autograd/core/told_warnings.h>
#include <peal/autograd/core/trace.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include "arrays.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace peal;
using testing::error_of;

TEST_CASE("the allocator aligns, reuses the newest block, and wastes at most a quarter") {
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{65}, std::size_t{5000}, std::size_t{3} << 20}) {
    CHECK(size_class(bytes) >= bytes);
    CHECK(size_class(bytes) <= bytes + bytes / 4 + 64);
    CHECK(size_class(size_class(bytes)) == size_class(bytes));
    void* data = cpu_allocate(bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(data) % 64 == 0);
    cpu_release(data, bytes);
  }
  CHECK(cpu_allocate(0) == nullptr);
  cpu_release(nullptr, 0);
  const auto before = cpu_allocator_statistics();
  void* data = cpu_allocate(1000);
  CHECK(cpu_allocator_statistics().in_use == before.in_use + size_class(1000));
  cpu_release(data, 1000);
  const auto after = cpu_allocator_statistics();
  CHECK(after.in_use == before.in_use);
#if !defined(__SANITIZE_ADDRESS__)  // there it caches nothing
  void* again = cpu_allocate(1000);
  CHECK(again == data);
  CHECK(cpu_allocator_statistics().from_system == after.from_system);
  cpu_release(again, 1000);
#endif
}

TEST_CASE("a large block serves a smaller request, and is whole again afterwards") {
  constexpr std::size_t large = std::size_t{80} << 20, smaller = std::size_t{48} << 20;
  const auto before = cpu_allocator_statistics();
  void* data = cpu_allocate(large);
  CHECK(reinterpret_cast<std::uintptr_t>(data) % 64 == 0);
  cpu_release(data, large);
  void* part = cpu_allocate(smaller);
  static_cast<char*>(part)[smaller - 1] = 1;
#if !defined(__SANITIZE_ADDRESS__)
  CHECK(part == data);
  void* other = cpu_allocate(large / 4);  // less than half: takes none of such size
  CHECK(other != part);
  cpu_release(other, large / 4);
#endif
  cpu_release(part, smaller);
  void* again = cpu_allocate(large);
#if !defined(__SANITIZE_ADDRESS__)
  CHECK(again == data);
#endif
  static_cast<char*>(again)[large - 1] = 1;
  cpu_release(again, large);
  CHECK(cpu_allocator_statistics().in_use == before.in_use);
}

TEST_CASE("the allocator gives no memory to two threads at once") {
  std::atomic<int> wrong{0}, looked{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      // Each keeps a few, all of them with its own mark, and looks at one before it lets go.
      std::array<Tensor, 5> kept;
      for (int i = 0; i < 500; ++i) {
        Tensor& place = kept[static_cast<std::size_t>(i) % kept.size()];
        if (place.defined()) {
          const auto values = place.to_vector<float>();
          const auto mine = std::count(values.begin(), values.end(), static_cast<float>(t + 1));
          wrong += mine != place.numel();
          ++looked;
        }
        place = Tensor::zeros({t * 100 + i % 7 + 1});
        std::fill_n(place.data<float>(), place.numel(), static_cast<float>(t + 1));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(looked == 4 * 495);
}

TEST_CASE("storage drops its bytes and regains them under living handles") {
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3}, {3});
  const Tensor part = x.detach({2}, 1);
  CHECK(part.data<float>()[0] == 2);
  const auto version = x.storage()->version();
  x.storage()->drop();
  CHECK(error_of([&] { part.data<float>(); }).find("regain") != std::string::npos);
  x.storage()->regain();
  CHECK(x.storage()->version() > version);
  x.data<float>()[1] = 5;
  CHECK(part.data<float>()[0] == 5);

  float own[2] = {1, 2};
  const Tensor wrapped = Tensor::from_blob(own, {2}, DType::f32);
  CHECK(error_of([&] { wrapped.storage()->drop(); }).find("cannot be dropped") !=
        std::string::npos);
}

TEST_CASE("values that are there again have the version that they had, and no other has") {
  const Tensor x = Tensor::from(std::vector<float>{1, 2}, {2});
  Storage& storage = *x.storage();
  storage.bump_version();
  const auto saved = storage.version();
  for (int round = 0; round < 2; ++round) {
    storage.drop();
    CHECK(storage.version() == saved);
    CHECK(error_of([&] { storage.restored(); }).find("not regained") != std::string::npos);
    storage.regain();
    CHECK(storage.version() > saved);
    x.copy_(Tensor::from(std::vector<float>{1, 2}, {2}));
    const auto meanwhile = storage.version();
    storage.restored();
    CHECK(storage.version() == saved);
    CHECK(error_of([&] { storage.restored(); }).find("not dropped") != std::string::npos);
    if (round == 1) {
      x.zero_();
      CHECK(storage.version() > meanwhile);
    }
  }
}

TEST_CASE("views hold their storage, and blobs release when the last handle goes") {
  float own[4] = {1, 2, 3, 4};
  bool released = false;
  View view;
  {
    const Tensor blob = Tensor::from_blob(own, {4}, DType::f32, [&] { released = true; });
    view = blob.view().part(1, 2);
  }
  CHECK(!released);
  CHECK(reinterpret_cast<float*>(view.data())[0] == 2);
  CHECK(view.bytes() == 8);
  CHECK(error_of([&] { view.part(1, 2); }).find("of a view of 2") != std::string::npos);
  view = {};
  CHECK(released);
}

TEST_CASE("aliases and rows share storage, clones do not") {
  const Tensor x = Tensor::from(std::vector<std::int64_t>{0, 1, 2, 3, 4, 5}, {3, 2});
  const Tensor rows = x.rows(1, 3);
  CHECK(rows.shape() == Shape{2, 2});
  rows.data<std::int64_t>()[0] = 9;
  CHECK(x.data<std::int64_t>()[2] == 9);
  const Tensor copy = x.clone();
  copy.data<std::int64_t>()[0] = 7;
  CHECK(x.data<std::int64_t>()[0] == 0);
  const auto version = x.storage()->version();
  x.copy_(copy);
  CHECK(x.data<std::int64_t>()[0] == 7);
  CHECK(x.storage()->version() == version + 1);
  const Tensor other = Tensor::zeros({3, 2}, DType::i64);
  other.rebind(x);
  CHECK(other.data<std::int64_t>() == x.data<std::int64_t>());
}

TEST_CASE("errors of tensors say what was expected and what came") {
  CHECK(error_of([] { Tensor().shape(); }).find("before it was given a value") !=
        std::string::npos);
  CHECK(error_of([] { Tensor::zeros({2}).data<double>(); }) ==
        "tensor: its elements are f32, asked for as f64");
  CHECK(error_of([] {
          Tensor::from(std::vector<float>{1, 2}, {3});
        }) == "tensor: shape [3] holds 3 elements, got 2 values");
  CHECK(error_of([] { Tensor::zeros({2}).item<float>(); }) ==
        "item: expected one element, got shape [2]");
  CHECK(error_of([] {
          const Tensor two = Tensor::zeros({2});
          two.copy_(Tensor::zeros({2}, DType::f64));
        }) == "copy_: expected f32 [2], got f64 [2]");
  CHECK(error_of([] { Shape{2, 3}[2]; }).find("dimension 2 of a tensor of 2") != std::string::npos);
  CHECK(error_of([] { parse_device("gpu"); }) == "device: expected cpu, cuda or cuda:N, got 'gpu'");
}

TEST_CASE("item converts") {
  CHECK(Tensor::scalar(std::int64_t{3}).item<float>() == 3.0f);
  CHECK(Tensor::scalar(BFloat16(1.5f)).item<double>() == 1.5);
  CHECK(Tensor::scalar(2.5).item<Half>().bits == Half(2.5f).bits);
}

TEST_CASE("a context belongs to its thread and is inherited on request") {
  context().log_tag = "rank 1";
  manual_seed(5);
  std::string plain, inherited;
  std::uint64_t seed = 0;
  std::thread([&] { plain = context().log_tag; }).join();
  std::thread(with_context([&] {
    inherited = context().log_tag;
    seed = context().generator.seed;
  })).join();
  CHECK(plain.empty());
  CHECK(inherited == "rank 1");
  CHECK(seed == 5);
  context() = {};
}

TEST_CASE("a trace adds up calls by name and phase") {
  context().trace = std::make_shared<Trace>();
  { TraceSpan a("one"); }
  { TraceSpan b("two", true); }
  { TraceSpan c("one"); }
  const auto rows = context().trace->rows();
  CHECK(rows.size() == 2);
  for (const auto& row : rows) {
    CHECK(row.forward.calls == (row.name == "one" ? 2 : 0));
    CHECK(row.backward.calls == (row.name == "two" ? 1 : 0));
  }
  context().trace.reset();
}

TEST_CASE("on the CPU, streams and events have nothing to do") {
  CHECK(device_count(DeviceType::cpu) == 1);
  const Stream stream = current_stream(Device{});
  CHECK(stream.query());
  stream.synchronize();
  Event event;
  CHECK(event.query());
  event.record(stream);
  stream.wait(event);
  event.synchronize();
  CHECK(event.seconds_since(event) == 0);
  const StreamGuard guard(stream);
  const Tensor pinned = Tensor::pinned({3});
  pinned.copy_(Tensor::from(std::vector<float>{1, 2, 3}, {3}), true);
  pinned.record_stream(stream);
  CHECK(pinned.to_vector<float>() == std::vector<float>{1, 2, 3});
  CHECK(Tensor::pinned({0}).numel() == 0);
}

TEST_CASE("on the CPU, a graph calls its function each time") {
  Graph graph(Device{});
  int calls = 0;
  for (int i = 0; i < 5; ++i) graph.run([&] { ++calls; });
  CHECK(calls == 5);
  CHECK(!graph.captured());
}

TEST_CASE("a warning in the same words is told once, and counted at the end") {
  const std::string said = peal::testing::stderr_of([] {
    for (const int rank : {0, 1, 3, 1}) {
      context().log_tag = concat("rank ", rank);
      log_warning("[x] rank ", rank, ", of 4, is slow");
      log_info("news");
    }
    context() = {};
    for (int i = 0; i < 3; ++i) log_warning("nobody's");
    log_warning("once");
    tell_repeated_warnings();
    tell_repeated_warnings();  // there is nothing new
    log_warning("nobody's");
    tell_repeated_warnings();
  });
  CHECK(said ==
        "[rank 0] warning: [x] rank 0, of 4, is slow\n[rank 0] news\n[rank 1] news\n"
        "[rank 3] news\n[rank 1] news\nwarning: nobody's\nwarning: once\n"
        "[rank 0] warning: [x] rank 0, of 4, is slow (x4: ranks 0-1,3)\n"
        "warning: nobody's (x3)\nwarning: nobody's (x4)\n");
}

TEST_CASE("what a rank says of another is not what that says of itself") {
  CHECK(without_rank("rank 3 waits", 3) == without_rank("rank 4 waits", 4));
  CHECK(without_rank("rank 31 waits", 3) == "rank 31 waits");
  CHECK(without_rank("rank 3 waits for rank 1", 3) != without_rank("rank 4 waits for rank 2", 4));
}

TEST_CASE("of more warnings than there are places all are told") {
  const auto table = std::make_unique<ToldWarnings>();
  for (std::uint64_t words = 1; words < 1000; ++words) CHECK(table->say(words, 0));
  CHECK_FALSE(table->say(5, 1));
  CHECK(table->times(5).ranks == std::vector<int>{0, 1});
  CHECK(table->say(999, 0));  // which had no place
  CHECK(table->times(999).times == 0);
  CHECK_FALSE(table->say(5, 300));  // beyond those of whom it is known which
  CHECK(table->times(5).times == 3);
  CHECK(table->times(5).ranks.empty());
}
