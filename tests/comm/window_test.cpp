// SPDX-License-Identifier: Apache-2.0
// Memory that ranks share, over threads: who meets whom there, and collectives that run on it.
#include <peal/autograd/core/error.h>
#include <peal/comm/group/group_rendezvous.h>
#include <peal/comm/memory/window.h>
#include <peal/comm/record/measured_run.h>
#include <peal/comm/start/threads.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>
#include "collective_values.h"
#include "failing_run.h"

using namespace peal;
using namespace peal::comm;
using peal::testing::error_of;
using peal::testing::Folder;
using peal::testing::wait_until;

namespace {

// What the group's all_reduces ran by, in their order.
std::vector<std::string> algorithms_of(int world, const ProcessGroup::Options& wanted,
                                       const std::function<void(const ProcessGroup&)>& f) {
  const Folder folder;
  ProcessGroup::Options options = wanted;
  options.trace = folder.path;
  run_ranks(world, options, f);
  std::vector<std::string> names;
  for (const MeasuredPart& part : read_measured(folder.path).parts) {
    if (part.rank == 0 && part.text.starts_with("all_reduce")) names.push_back(part.algorithm);
  }
  return names;
}

std::vector<int> everyone(const ProcessGroup& group) {
  std::vector<int> ranks(static_cast<std::size_t>(group.world()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

void check_sum(const ProcessGroup& group, const Tensor& data) {
  const std::int64_t count = data.numel();
  const auto world = static_cast<float>(group.world());
  for (std::int64_t i = 0; i < count; ++i) {
    data.data<float>()[i] = static_cast<float>(i % 97 + group.rank());
  }
  group.all_reduce(data).wait();
  for (std::int64_t i = 0; i < count; ++i) {
    const float want = world * static_cast<float>(i % 97) + world * (world - 1) / 2;
    PEAL_CHECK(data.data<float>()[i] == want, "element ", i, " of ", count, ": expected ", want,
               ", got ", data.data<float>()[i]);
  }
}

}  // namespace

TEST_CASE("ranks that meet know where each other's buffers lie") {
  run_ranks(3, [](const ProcessGroup& group) {
    GroupRendezvous ranks(group);
    const auto window = Window::create(ranks, everyone(group));
    CHECK(window->allocate(ranks, 100) == nullptr);  // threads reach everything
    std::vector<std::byte> in(8), out(8);
    const Plan plan({.rounds = {}, .room = 1});
    const auto text = [](const void* at) {
      return std::to_string(reinterpret_cast<std::uintptr_t>(at));
    };
    for (std::uint64_t operation = 0; operation < 5; ++operation) {
      const bool has_in = operation != 2 || group.rank() == 0;
      const std::byte* const first = has_in ? in.data() + operation : nullptr;
      // Who has no `in` is where its `out` is.
      const auto ins = ranks.exchange(text(has_in ? first : out.data()));
      const auto outs = ranks.exchange(text(out.data()));
      window->begin(plan, 1, operation, first, out.data());
      *window->reach(group.rank(), Buffer::room) = static_cast<std::byte>(10 + group.rank());
      for (int r = 0; r < 3; ++r) {
        if (r != group.rank()) window->signal(r);
      }
      for (int r = 0; r < 3; ++r) {
        if (r == group.rank()) continue;
        wait_until([&] { return window->await(r); });
        CHECK(text(window->reach(r, Buffer::in)) == ins[static_cast<std::size_t>(r)]);
        CHECK(text(window->reach(r, Buffer::out)) == outs[static_cast<std::size_t>(r)]);
        CHECK(*window->reach(r, Buffer::room) == static_cast<std::byte>(10 + r));
        CHECK_FALSE(window->await(r));  // one signal, one await
      }
      CHECK(window->reaches_all());
    }
  });
}

TEST_CASE("ranks that do not do the same never meet") {
  run_ranks(2, [](const ProcessGroup& group) {
    GroupRendezvous ranks(group);
    const auto window = Window::create(ranks, everyone(group));
    const int other = 1 - group.rank();
    window->begin(Plan({}), 1, static_cast<std::uint64_t>(group.rank()), nullptr, nullptr);
    CHECK(window->reach(other, Buffer::in) == nullptr);
    window->signal(other);
    group.barrier().wait();
    CHECK_FALSE(window->await(other));
    CHECK_FALSE(window->await(other));
  });
}

TEST_CASE("an all_reduce of one node goes through the memory that its ranks share") {
  const auto work = [](const ProcessGroup& group) {
    check_sum(group, Tensor::zeros({100}));
    check_sum(group, Tensor::zeros({100'003}));
  };
  using Names = std::vector<std::string>;
  CHECK(algorithms_of(3, {}, work) == Names{"slots", "direct_slices"});
  ProcessGroup::Options messages;
  messages.shared_memory = false;
  CHECK(algorithms_of(3, messages, work) == Names{"recursive_doubling", "circulant"});
  ProcessGroup::Options chosen;
  chosen.algorithms = "all_reduce=staged_slices:0-1000;ring:1001-max";
  CHECK(algorithms_of(3, chosen, work) == Names{"staged_slices", "ring"});
  ProcessGroup::Options none = chosen;  // messages stand in
  none.shared_memory = false;
  CHECK(algorithms_of(3, none, work) == Names{"recursive_doubling", "ring"});
}

TEST_CASE("a result that outgrows the caches is gathered round them, late ranks or not") {
  run_ranks(2, [](const ProcessGroup& group) {
    constexpr std::int64_t each = std::int64_t{5} << 20;
    const Tensor mine = group.allocate({each}), all = group.allocate({2 * each});
    for (int round = 0; round < 4; ++round) {
      std::fill_n(mine.data<float>(), each, static_cast<float>(group.rank() + 10 * round));
      if (round % 2 == group.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      group.all_gather(all, mine).wait();
      for (const std::int64_t i : {std::int64_t{0}, std::int64_t{17}, each - 1}) {
        CHECK(all.data<float>()[i] == static_cast<float>(10 * round));
        CHECK(all.data<float>()[each + i] == static_cast<float>(10 * round + 1));
      }
      group.barrier().wait();
    }
  });
}

TEST_CASE("a few elements go with the signals, in one line or several, and more do not") {
  for (const int world : {2, 3, 5}) {
    run_ranks(world, [](const ProcessGroup& group) {
      for (std::int64_t count = 1; count <= 100; ++count) check_sum(group, Tensor::zeros({count}));
    });
  }
}

TEST_CASE("low precision goes there too, but where f32 is multiplied") {
  const auto work = [](const ProcessGroup& group) {
    for (const DType dtype : {DType::f16, DType::bf16}) {
      for (const std::int64_t count : {100, 100'003}) {
        const Tensor data = comm::testing::filled(count, dtype, [](std::int64_t) { return 1; });
        group.all_reduce(data).wait();
        group.all_reduce(data, ReduceOp::avg).wait();
        group.all_reduce_premultiplied(data, 0.5).wait();
        for (std::int64_t i = 0; i < count; ++i) {
          const double got = comm::testing::element(data, i);
          PEAL_CHECK(got == 4.5, "element ", i, " of ", count, ": expected 4.5, got ", got);
        }
      }
    }
  };
  std::vector<std::string> names;
  for (int dtype = 0; dtype < 2; ++dtype) {
    for (const char* name :
         {"slots", "slots", "recursive_doubling", "direct_slices", "direct_slices", "circulant"}) {
      names.emplace_back(name);
    }
  }
  CHECK(algorithms_of(3, {}, work) == names);
}

TEST_CASE("operations in shared memory come one after the other, whoever is late") {
  for (const int world : {2, 3, 5}) {
    run_ranks(world, [](const ProcessGroup& group) {
      constexpr int rounds = 40, in_flight = 6;
      const ProcessGroup part = group.split(group.rank() % 2);
      for (int k = 0; k < rounds; ++k) {
        std::vector<Tensor> all;
        std::vector<Work> works;
        for (int i = 0; i < in_flight; ++i) {
          // Small and large, aligned and not, of two groups, with messages between.
          const std::int64_t count = i % 2 == 0 ? 5 + k : 9000 + 700 * i + k;
          const Tensor memory = Tensor::zeros({count + 3});
          const Tensor data = memory.rows(i % 4, i % 4 + count);
          for (std::int64_t j = 0; j < count; ++j) data.data<float>()[j] = 1;
          const ProcessGroup& of = i % 3 == 2 ? part : group;
          works.push_back(of.all_reduce(data));
          all.push_back(data);
          if (i == 3) works.push_back(group.barrier());
        }
        for (const Work& work : works) work.wait();
        for (int i = 0; i < in_flight; ++i) {
          const auto want = static_cast<float>(i % 3 == 2 ? part.world() : group.world());
          for (const float got : all[static_cast<std::size_t>(i)].to_vector<float>()) {
            PEAL_CHECK(got == want, "expected ", want, ", got ", got);
          }
        }
      }
    });
  }
}

TEST_CASE("what a continuation starts meets the other ranks' whenever it comes") {
  run_ranks(3, [](const ProcessGroup& group) {
    for (int k = 0; k < 50; ++k) {
      const auto ones = [](std::int64_t count) {
        return Tensor::from(std::vector<float>(static_cast<std::size_t>(count), 1), {count});
      };
      const Tensor a = ones(4), b = ones(20'000), c = ones(30);
      const Work chain = group.all_reduce(a).then([&] { return group.all_reduce(b); });
      const Work beside = group.all_reduce(c);
      chain.wait();
      beside.wait();
      CHECK(b.to_vector<float>() == std::vector<float>(20'000, 3));
      CHECK(c.to_vector<float>() == std::vector<float>(30, 3));
    }
  });
}

TEST_CASE("a room has no place for everything, and that is said") {
  ProcessGroup::Options slots;
  slots.algorithms = "all_reduce=slots";
  run_ranks(2, slots, [](const ProcessGroup& group) {
    check_sum(group, Tensor::zeros({65536}));
    const std::string error = error_of([&] { group.all_reduce(Tensor::zeros({65537})).wait(); });
    CHECK(error ==
          "[comm] all_reduce: the algorithm slots has room for 262144 bytes, not for 262148; "
          "choose direct_slices for them");
  });
}

TEST_CASE("ragged blocks that the rooms cannot hold go by slices, unasked") {
  run_ranks(5, [](const ProcessGroup& group) {
    // Nearly all of it from rank 0 to rank 1: few bytes a rank, but long pieces.
    std::vector<std::int64_t> counts(25);
    counts[1] = 10'235;
    const std::int64_t in = group.rank() == 0 ? counts[1] : 0;
    const std::int64_t out = group.rank() == 1 ? counts[1] : 0;
    const Tensor from = Tensor::from(std::vector<float>(static_cast<std::size_t>(in), 3), {in});
    const Tensor to = Tensor::zeros({out});
    group.all_to_all_v(to, from, counts).wait();
    CHECK(to.to_vector<float>() == std::vector<float>(static_cast<std::size_t>(out), 3));
  });
}

TEST_CASE("a schedule of one's own in shared memory") {
  run_ranks(2, [](const ProcessGroup& group) {
    const int rank = group.rank(), other = 1 - rank;
    const Tensor data = Tensor::from(std::vector<float>{1, 2}, {2});
    const auto run = [&](const Program& program) {
      return group.run(Collective::all_reduce, std::make_shared<const Plan>(program), data, data);
    };
    Program sum;
    const Span mine{self, Buffer::in, rank, 1}, theirs{other, Buffer::in, rank, 1};
    sum.rounds = {{signal(other), await(other)},
                  {copy(scratch({0, 1}), mine)},
                  {reduce(scratch({0, 1}), theirs)},
                  {copy(out({rank, 1}), scratch({0, 1})),
                   copy({other, Buffer::out, rank, 1}, scratch({0, 1}))},
                  {signal(other), await(other)}};
    sum.scratch = 1;
    run(sum).wait();
    CHECK(data.to_vector<float>() == std::vector<float>{2, 4});
    // A sum that stays in scratch between its rounds is no combination, and right all the same.
    Program twice = sum;
    twice.rounds.insert(twice.rounds.end() - 1, {{copy(out({rank, 1}), scratch({0, 1}))}});
    run(twice).wait();
    CHECK(data.to_vector<float>() == std::vector<float>{4, 8});

    const auto refused = [&](const Program& program) {
      return error_of([&] { (void)run(program); });
    };
    Program stranger = sum;
    stranger.rounds[2] = {reduce(scratch({0, 1}), {2, Buffer::in, 0, 1})};
    CHECK(refused(stranger).find("talks to rank 2 of a world of 2") != std::string::npos);
    Program none = sum;
    none.rounds[2] = {reduce(scratch({0, 1}), {-2, Buffer::in, 0, 1})};
    CHECK(refused(none).find("span of rank -2") != std::string::npos);
    std::string late;
    group.all_reduce(Tensor::zeros({1}))
        .then([&] { return Work(), late = refused(sum), Work(); })
        .wait();
    CHECK(late.find("cannot be started by then()") != std::string::npos);
    // f16 is added as f32, so the room holds half as many.
    const Tensor half = Tensor::zeros({2}, DType::f16);
    Program roomy = sum;
    roomy.rounds[1] = {copy(scratch({0, 1}), room({65'536, 1}))};
    roomy.room = 65'537;
    CHECK(error_of([&] {
            (void)group.run(Collective::all_reduce, std::make_shared<const Plan>(roomy), half,
                            half);
          }).find("65537 elements of room, which has 65536") != std::string::npos);
  });
}

TEST_CASE("PEAL_SHARED_MEMORY is 0 or 1") {
  setenv("PEAL_SHARED_MEMORY", "0", 1);
  CHECK_FALSE(ProcessGroup::Options::from_environment().shared_memory);
  setenv("PEAL_SHARED_MEMORY", "1", 1);
  CHECK(ProcessGroup::Options::from_environment().shared_memory);
  setenv("PEAL_SHARED_MEMORY", "yes", 1);
  CHECK(error_of([] { (void)ProcessGroup::Options::from_environment(); }) ==
        "PEAL_SHARED_MEMORY: expected 0 or 1, got 'yes'");
  unsetenv("PEAL_SHARED_MEMORY");
}
