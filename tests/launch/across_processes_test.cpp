// SPDX-License-Identifier: Apache-2.0
// What programs do across ranks: lists shared out, tensors of unequal length, and results in the
// order of one rank.
#include <doctest/doctest.h>
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/threads.h>
#include <peal/data/loader.h>
#include <peal/data/stream_loader.h>
#include <peal/launch/training/across_processes.h>
#include <peal/tests/errors.h>

#include <chrono>
#include <functional>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

using namespace peal;
using namespace peal::testing;
using Samples = std::vector<std::int64_t>;

namespace {

void ranks(int world, const std::function<void(const comm::ProcessGroup&)>& f) {
  comm::run_ranks(world, {.deadline = std::chrono::minutes(1)}, f);
}

Tensor whole(const Samples& values, const Shape& shape) {
  return Tensor::from(values, shape, Device{});
}

// Sample i is the number i.
struct Numbers : data::Dataset {
  explicit Numbers(std::int64_t n) : count(n) {}
  std::int64_t size() const override { return count; }
  data::Batch get(std::span<const std::int64_t> indices) const override {
    return {Tensor::from(indices, {std::ssize(indices)}, Device{}), Tensor()};
  }
  std::int64_t count;
};

// What all ranks find in an epoch of `size` samples in batches of `each`, by the epoch and, where
// they have equally many batches, by step.
void check_order(const comm::ProcessGroup& group, data::Way way, std::int64_t size,
                 std::int64_t each, bool exact) {
  CAPTURE(concat(size, " samples in batches of ", each, ", ", group.world(), " ranks, way ",
                 static_cast<int>(way)));
  const auto set = std::make_shared<Numbers>(size);
  const auto loader_of = [&](data::Way how, Place place) {
    return std::make_unique<data::DataLoader>(
        set, data::LoaderOptions{.batch_size = how == data::Way::split ? each * place.world : each,
                                 .shuffle = true,
                                 .shard = place,
                                 .way = how,
                                 .exact = exact});
  };
  const auto one = loader_of(data::Way::samples, {});
  Samples expected;
  while (const auto batch = one->next()) {
    for (const auto i : batch->x.to_vector<std::int64_t>()) expected.push_back(10 * i);
  }
  const auto loader = loader_of(way, {group.rank(), group.world()});
  Tensors found{Tensor::empty({0, 1}, DType::i64, Device{})};
  Samples places, by_step;
  while (const auto batch = loader->next()) {
    const Tensor result = reshape(batch->x * 10, {-1, 1});
    for (const std::int64_t place : loader->places()) places.push_back(place);
    found.push_back(result);
    if (exact) continue;
    const auto step =
        launch::gather_in_order(group, result, loader->places()).to_vector<std::int64_t>();
    by_step.insert(by_step.end(), step.begin(), step.end());
  }
  const Tensor all = launch::gather_in_order(group, cat(found), places);
  REQUIRE(all.shape() == Shape{size, 1});
  REQUIRE(all.to_vector<std::int64_t>() == expected);
  if (!exact && way != data::Way::contiguous) REQUIRE(by_step == expected);
}

}  // namespace

TEST_CASE("lists are shared out as Accelerate has it") {
  Samples seventeen;
  for (std::int64_t i = 0; i < 17; ++i) seventeen.push_back(i);
  Samples together;
  for (int rank = 0; rank < 4; ++rank) {
    const Samples mine = launch::split_between_processes(seventeen, {rank, 4});
    CHECK(mine.size() == (rank == 0 ? 5 : 4));
    together.insert(together.end(), mine.begin(), mine.end());
    CHECK(launch::split_between_processes(whole(seventeen, {17}), {rank, 4})
              .to_vector<std::int64_t>() == mine);
    CHECK(launch::split_between_processes(seventeen, {rank, 4}, true).size() == 5);
  }
  CHECK(together == seventeen);
  const std::vector<std::string> letters{"A", "B", "C"};
  using Letters = std::vector<std::string>;
  CHECK(launch::split_between_processes(letters, {0, 2}) == Letters{"A", "B"});
  CHECK(launch::split_between_processes(letters, {1, 2}) == Letters{"C"});
  CHECK(launch::split_between_processes(letters, {1, 2}, true) == Letters{"C", "C"});
  CHECK(launch::split_between_processes(letters, {3, 4}).empty());
  CHECK(launch::split_between_processes(letters, {3, 4}, true) == Letters{"C"});
  CHECK(launch::split_between_processes(Letters{}, {1, 4}, true).empty());
  CHECK(launch::split_between_processes(whole({1, 2, 3, 4, 5, 6}, {3, 2}), {1, 2}, true)
            .to_vector<std::int64_t>() == Samples{5, 6, 5, 6});
  check_has(error_of([&] {
              launch::split_between_processes(letters, {2, 2});
            }),
            "expected a rank below its world, got rank 2 of 2");
}

TEST_CASE("tensors of unequal length are made as long as the longest") {
  ranks(3, [](const comm::ProcessGroup& group) {
    const std::int64_t rows = group.rank() + 1;
    const Tensor mine = full({rows, 2}, 7.);
    std::vector<float> expected(static_cast<std::size_t>(rows * 2), 7);
    expected.resize(6, 0);
    CHECK(launch::pad_across_processes(group, mine).to_vector<float>() == expected);
    const Tensor turned = launch::pad_across_processes(group, full({2, rows}, 7.), -1, -1, true);
    CHECK(turned.shape() == Shape{2, 3});
    std::vector<float> row(static_cast<std::size_t>(3 - rows), -1);
    row.resize(3, 7);
    CHECK(narrow(turned, 0, 1, 1).to_vector<float>() == row);
    // What cannot be padded is told to all ranks, which then are at the same call.
    check_has(error_of([&] {
                launch::pad_across_processes(group, full({rows, group.rank() == 1 ? 5 : 2}, 7.));
              }),
              "rank 0 has a tensor f32 [*, 2], and rank 1 one f32 [*, 5]: they may differ in the "
              "size * alone");
    check_has(
        error_of([&] { launch::pad_across_processes(group, mine, group.rank() == 2 ? 2 : 0); }),
        "rank 2: pad_across_processes: a tensor [3, 2] has no dim 2");
    CHECK(launch::pad_across_processes(group, mine).size(0) == 3);
  });
}

TEST_CASE("what ranks found comes in the order of one, whatever way they shared the samples") {
  // The sizes and batches of Accelerate's gather_for_metrics, and of what its users met.
  for (const int world : {1, 2, 3}) {
    ranks(world, [&](const comm::ProcessGroup& group) {
      for (const data::Way way : {data::Way::samples, data::Way::batches, data::Way::split,
                                  data::Way::contiguous, data::Way::dispatched}) {
        for (const auto& [size, each] : {std::pair(99, 16), std::pair(512, 64), std::pair(9, 5),
                                         std::pair(30, 4), std::pair(1, 2), std::pair(0, 2)}) {
          for (const bool exact : {false, true}) check_order(group, way, size, each, exact);
        }
      }
    });
  }
}

TEST_CASE("the states of all ranks' readers of a stream become one by a maximum") {
  struct Parts : data::StreamDataset {
    std::int64_t parts() const override { return 5; }
    Reader read(std::int64_t part, std::int64_t from, const data::Draws&) const override {
      return [part, k = from]() mutable -> std::optional<data::Batch> {
        if (k > 2 * part) return std::nullopt;
        return data::Batch{whole({10 * part + k++}, {1}), Tensor()};
      };
    }
  };
  ranks(2, [](const comm::ProcessGroup& group) {
    const auto make = [&](Place place) {
      return std::make_unique<data::StreamLoader>(
          std::make_shared<Parts>(),
          data::StreamLoaderOptions{.batch_size = 2, .place = place, .readers = 2});
    };
    const auto collect = [&](data::StreamLoader& loader, std::int64_t most) {
      std::string mine;
      for (std::int64_t k = 0; k < most && loader.has_next(); ++k) {
        for (const auto sample : loader.next()->x.to_vector<std::int64_t>()) {
          mine += std::to_string(sample) + " ";
        }
      }
      return mine;
    };
    const auto loader = make({group.rank(), 2});
    const std::string before = collect(*loader, 3);
    const NamedTensors state = loader->state_dict();
    for (const auto& [name, tensor] : state) {
      group.all_reduce(tensor, comm::ReduceOp::max).wait();
    }
    std::string all;
    for (const std::string& each : group.all_gather_object(before)) all += each;
    const auto alone = make({});
    alone->load_state_dict(state);
    all += collect(*alone, 100);
    std::istringstream words(all);
    Samples seen{std::istream_iterator<std::int64_t>(words), {}};
    std::sort(seen.begin(), seen.end());
    Samples expected;
    for (std::int64_t part = 0; part < 5; ++part) {
      for (std::int64_t k = 0; k <= 2 * part; ++k) expected.push_back(10 * part + k);
    }
    CHECK(seen == expected);
    loader->load_state_dict(state);
    const std::string rest = collect(*loader, 100);
    const auto unbroken = make({group.rank(), 2});
    CHECK(collect(*unbroken, 100) == before + rest);
  });
}

TEST_CASE("what cannot be put in order is said on all ranks") {
  ranks(2, [](const comm::ProcessGroup& group) {
    const Samples same{0, 1};
    check_has(error_of([&] { launch::gather_in_order(group, full({2}, 1.), same); }),
              "place 0 of the order has two rows, of rank 0 and of rank 1");
    check_has(error_of([&] { launch::gather_in_order(group, full({group.rank() + 2}, 1.), same); }),
              "rank 1: gather_in_order: expected a place for each row of a tensor [3], got 2");
    const Samples mine{group.rank()};
    CHECK(launch::gather_in_order(group, full({1}, 1. * group.rank()), mine).to_vector<float>() ==
          std::vector<float>{0, 1});
  });
}
