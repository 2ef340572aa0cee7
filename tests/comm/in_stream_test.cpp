// SPDX-License-Identifier: Apache-2.0
// Collectives in the caller's stream: they come where they were called, among those that go beside
// it, over schedules and sub-groups, and when somebody fails.
#include <peal/comm/group/in_stream.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include "collective_values.h"
#include "failing_run.h"
#include "on_rank.h"
#include "over_queues.h"
#include "queue_device.h"

using namespace peal;
using namespace peal::comm;
using peal::testing::contains;
using peal::testing::ones;
using peal::testing::over_queues;

namespace {

constexpr int count = 700;

// By the stream, when it comes to it.
void change(const Stream& stream, const Tensor& x, float factor, float summand) {
  auto* const values = reinterpret_cast<float*>(x.raw());
  peal::testing::put(stream, [=] {
    for (int i = 0; i < count; ++i) values[i] = values[i] * factor + summand;
  });
}

Stream here() { return current_stream(context().device); }

}  // namespace

TEST_CASE("what follows in the stream comes after it, though nobody waits") {
  for (const char* algorithms : {"all_reduce=ring", "all_reduce=recursive_doubling"}) {
    over_queues(3, {.algorithms = algorithms}, [](const ProcessGroup& group) {
      for (int round = 0; round < 5; ++round) {
        const Tensor x = ones(count);
        change(here(), x, static_cast<float>(group.rank() + 1), 0);
        {
          const InStream guard;
          static_cast<void>(group.all_reduce(x));
          change(here(), x, 10, 0);
          static_cast<void>(group.all_reduce(x, ReduceOp::max));
        }
        change(here(), x, 1, 1);
        CHECK(comm::testing::element(x, count - 1) == 61);
      }
      CHECK_FALSE(InStream::is_on());
    });
  }
}

TEST_CASE("it comes between those that go beside the stream, of sub-groups and in others' too") {
  over_queues(3, {}, [](const ProcessGroup& group) {
    const auto part = group.split(0);
    const Stream other = Stream::create(context().device);
    for (int round = 0; round < 6; ++round) {
      const ProcessGroup& first = round % 2 == 0 ? group : part;
      const ProcessGroup& second = round % 3 == 0 ? group : part;
      std::vector<Tensor> data;
      std::vector<Work> works;
      for (int i = 0; i < 4; ++i) {
        data.push_back(ones(count));
        change(here(), data.back(), static_cast<float>(group.rank() + 1), 0);
      }
      works.push_back(first.all_reduce(data[0]));
      Work stays;
      {
        const InStream guard;
        stays = second.all_reduce(data[1]);
      }
      works.push_back(second.all_reduce(data[2]));
      {
        const StreamGuard elsewhere(other);
        stays.wait();  // another stream than that in which it is
        change(other, data[1], 2, 0);
        CHECK(comm::testing::element(data[1], 5) == 12);
        works[0].wait();
        const InStream guard;
        static_cast<void>(first.all_reduce(data[0]));
        change(other, data[0], 1, 1);
        CHECK(comm::testing::element(data[0], 5) == 19);
      }
      {
        const InStream guard;
        static_cast<void>(first.all_reduce(data[3]));
        change(here(), data[3], 1, 3);
      }
      works[1].wait();
      change(here(), data[2], 1, 2);
      CHECK(comm::testing::element(data[3], 0) == 9);
      CHECK(comm::testing::element(data[2], 0) == 8);
      for (const Work& work : works) work.synchronize();
      stays.synchronize();
    }
  });
}

TEST_CASE("tensors of the CPU go as ever, and a failure reaches those in the stream") {
  std::string thrown;
  try {
    over_queues(3, {}, [](const ProcessGroup& group) {
      const InStream guard;
      const Tensor plain = Tensor::empty({8}, DType::f32, Device{});
      std::fill_n(plain.data<float>(), 8, 1.0f);
      group.all_reduce(plain).wait();
      CHECK(comm::testing::element(plain, 3) == 3);
      const Tensor x = ones(count);
      for (int i = 0; i < 4; ++i) {
        if (group.rank() == 1 && i == 2) throw std::runtime_error("rank 1 is off");
        group.all_reduce(x).synchronize();
      }
    });
  } catch (const std::exception& error) {
    thrown = error.what();
  }
  CHECK(contains(thrown, "rank 1 is off"));
}
