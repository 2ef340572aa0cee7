// SPDX-License-Identifier: Apache-2.0
// Texts between ranks; gathers and scatters of unequal parts; an all_to_all by each rank's own
// numbers.
#include <peal/comm/start/threads.h>

#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include "failing_run.h"

using namespace peal;
using namespace peal::comm;
using peal::testing::contains;
using peal::testing::error_of;
using peal::testing::failure;

namespace {

// Longer than what goes at once, of some; nothing, of rank 2.
std::string text_of(int rank) {
  if (rank == 2) return "";
  return std::string(static_cast<std::size_t>(rank == 1 ? 70'000 : 3),
                     static_cast<char>('a' + rank));
}

ProcessGroup::Options patient(bool shared) {
  ProcessGroup::Options options;
  options.deadline = std::chrono::seconds(60);
  options.shared_memory = shared;
  return options;
}

Tensor numbers(std::int64_t count, int first) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(first + i));
  return Tensor::from(values, {count});
}

}  // namespace

TEST_CASE("texts are gathered, scattered and sent, of any length") {
  for (const bool shared : {true, false}) {
    for (const int world : {1, 2, 3, 5}) {
      run_ranks(world, patient(shared), [](const ProcessGroup& group) {
        for (int root = 0; root < group.world(); ++root) {
          std::vector<std::string> all;
          for (int r = 0; r < group.world(); ++r) all.push_back(text_of(r) + concat(root));
          const std::string mine = text_of(group.rank()) + concat(root);
          const bool here = group.rank() == root;
          CHECK(group.gather_object(mine, root) == (here ? all : std::vector<std::string>()));
          CHECK(group.scatter_object(here ? all : std::vector<std::string>(), root) == mine);
        }
        if (group.world() == 1) return;
        if (group.rank() == 0) {
          for (int r = 1; r < group.world(); ++r) CHECK(group.recv_object(r, 4) == text_of(r));
          CHECK(group.recv_object(any_source, 5) == "whoever");
        } else {
          group.send_object(text_of(group.rank()), 0, 4);
          if (group.rank() == 1) group.send_object("whoever", 0, 5);
        }
      });
    }
  }
}

TEST_CASE("a text for each rank, or an error on all, who go on") {
  for (const int world : {1, 2, 3}) {
    run_ranks(world, patient(true), [&](const ProcessGroup& group) {
      for (int root = 0; root < world; ++root) {
        for (const int count : {0, world + 1}) {
          const bool here = group.rank() == root;
          const std::vector<std::string> texts(static_cast<std::size_t>(here ? count : world));
          CHECK(contains(error_of([&] { group.scatter_object(texts, root); }),
                         concat("scatter_object: expected a text for each of ", world,
                                " ranks, got ", count, " on rank ", root)));
        }
      }
    });
  }
}

TEST_CASE("unequal parts are gathered and scattered") {
  for (const bool shared : {true, false}) {
    for (const int world : {1, 2, 3, 5}) {
      run_ranks(world, patient(shared), [](const ProcessGroup& group) {
        for (const std::int64_t unit : {std::int64_t{1}, std::int64_t{20'000}}) {
          std::vector<std::int64_t> counts;
          std::int64_t total = 0, before = 0;
          for (int r = 0; r < group.world(); ++r) {
            counts.push_back(r == 1 ? 0 : unit * (r + 1));
            if (r < group.rank()) before += counts.back();
            total += counts.back();
          }
          const std::int64_t own = counts[static_cast<std::size_t>(group.rank())];
          const Tensor mine = numbers(own, static_cast<int>(before)), all = numbers(total, 0);
          for (int root = 0; root < group.world(); ++root) {
            const Tensor gathered = Tensor::zeros({total}), back = Tensor::zeros({own});
            group.gather_v(gathered, mine, counts, root).wait();
            const bool here = group.rank() == root;
            CHECK(gathered.to_vector<float>() ==
                  (here ? all : Tensor::zeros({total})).to_vector<float>());
            group.scatter_v(back, all, counts, root).wait();
            CHECK(back.to_vector<float>() == mine.to_vector<float>());
          }
        }
      });
    }
  }
  const std::string error = failure(2, patient(true), [](const ProcessGroup& group) {
    group.gather_v(Tensor::zeros({3}), Tensor::zeros({2}), {1, 2}, 0).wait();
  });
  CHECK(contains(error, "rank 0, gather: expected in of 1 elements, got 2"));
}

TEST_CASE("an all_to_all by each rank's own numbers") {
  // Rank s gives rank d (s + 2 d) mod 4 elements: s * 100 + d * 10 and up.
  const auto given = [](int s, int d) { return std::int64_t{(s + 2 * d) % 4}; };
  for (const int world : {1, 2, 3, 5}) {
    run_ranks(world, patient(true), [&](const ProcessGroup& group) {
      const int rank = group.rank();
      std::vector<std::int64_t> in_counts, out_counts;
      std::vector<float> in, want;
      for (int r = 0; r < group.world(); ++r) {
        in_counts.push_back(given(rank, r));
        out_counts.push_back(given(r, rank));
        for (int i = 0; i < given(rank, r); ++i) {
          in.push_back(static_cast<float>(rank * 100 + r * 10 + i));
        }
        for (int i = 0; i < given(r, rank); ++i) {
          want.push_back(static_cast<float>(r * 100 + rank * 10 + i));
        }
      }
      const Tensor out = Tensor::zeros({static_cast<std::int64_t>(want.size())});
      group
          .all_to_all_single(out, Tensor::from(in, {static_cast<std::int64_t>(in.size())}),
                             out_counts, in_counts)
          .wait();
      CHECK(out.to_vector<float>() == want);
    });
  }
  const std::string error = failure(3, patient(true), [](const ProcessGroup& group) {
    std::vector<std::int64_t> counts{1, 1, 1};
    std::vector<std::int64_t> wanted = counts;
    if (group.rank() == 2) wanted[0] = 3;
    std::string said = error_of([&] {
      const std::int64_t sum = wanted[0] + 2;
      group.all_to_all_single(Tensor::zeros({sum}), Tensor::zeros({3}), wanted, counts).wait();
    });
    PEAL_CHECK(contains(said, "rank 0 gives rank 2 1 elements, but that one expects 3"), said);
    // What one rank alone has wrong, all are told; and the group goes on.
    const auto told = [&](std::int64_t out, std::int64_t in, DType dtype,
                          const std::vector<std::int64_t>& given, const std::string& text) {
      const bool mine = group.rank() == 1;
      said = error_of([&] {
        group
            .all_to_all_single(Tensor::zeros({mine ? out : 3}, mine ? dtype : DType::f32),
                               Tensor::zeros({mine ? in : 3}), counts, mine ? given : counts)
            .wait();
      });
      PEAL_CHECK(contains(said, ": rank 1: ") && contains(said, text), said);
    };
    told(4, 3, DType::f32, counts, "expected in of 3 and out of 3 elements, got 3 and 4");
    told(3, 2, DType::f32, counts, "expected in of 3 and out of 3 elements, got 2 and 3");
    told(3, 3, DType::f64, counts, "in is f32, out is f64");
    told(3, 3, DType::f32, {1, 2}, "in_counts: expected a count for each of 3 ranks, got 2");
    told(3, 3, DType::f32, {1, 3, -1}, "expected counts of 0 and more, got -1 for rank 2");
    const Tensor one = Tensor::zeros({3});
    group.all_to_all_single(one, Tensor::from(std::vector<float>(3, 1), {3}), counts, counts)
        .wait();
    PEAL_CHECK(one.to_vector<float>() == std::vector<float>(3, 1), "another result");
  });
  CHECK(error == "nothing");
}
