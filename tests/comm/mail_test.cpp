// SPDX-License-Identifier: Apache-2.0
// Messages over shared memory, over TCP, and over both. Ranks are threads here; processes_test.cpp
// has real ones.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include "collective_cases.h"
#include "mail_ranks.h"

using namespace peal;
using namespace peal::comm;
using namespace peal::testing;

namespace {

const ProcessGroup::Options messages_alone{.deadline = std::chrono::seconds(60),
                                           .shared_memory = false};

void check_well(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) CHECK(error == "nothing");
}

Tensor bytes_of(std::int64_t count, int seed) {
  std::vector<std::uint8_t> bytes;
  for (std::int64_t i = 0; i < count; ++i) {
    bytes.push_back(static_cast<std::uint8_t>(i * 31 + seed));
  }
  return Tensor::from(bytes, {count});
}

void same(const Tensor& got, const Tensor& want) {
  PEAL_CHECK(got.to_vector<std::uint8_t>() == want.to_vector<std::uint8_t>(), "a message of ",
             want.numel(), " bytes has another content");
}

}  // namespace

TEST_CASE("every operation, type and reduction is exact at 1 to 5 ranks, by messages") {
  for (const Lines lines : all_lines) {
    for (const int world : comm::testing::worlds) {
      if (lines == Lines::both && world != 3)
        continue;  // both kinds, and each has been gone through
      std::atomic<std::int64_t> compared{0}, cases{0};
      check_well(on_mailrooms(lines, world, messages_alone, [&](const ProcessGroup& group) {
        CHECK(group.transport() == (lines == Lines::rings ? "shm" : "tcp"));
        const comm::testing::Tally tally = comm::testing::check_collectives(group);
        compared += tally.compared;
        if (group.rank() == 0) cases = tally.cases;
      }));
      CHECK(cases > comm::testing::fewest.cases);
      CHECK(compared > comm::testing::fewest.compared);
    }
  }
}

TEST_CASE("messages of all sizes may be taken in any order") {
  for (const Lines lines : all_lines) {
    // Around what goes whole, what goes in parts, and what a ring holds.
    const std::int64_t sizes[] = {0, 1, 15, 16, 17, 80, 16'335, 16'336, 16'337, 65'536, 1'000'003};
    check_well(on_mailrooms(lines, 3, messages_alone, [&](const ProcessGroup& group) {
      const int to = (group.rank() + 1) % 3, from = (group.rank() + 2) % 3;
      std::vector<Tensor> sent, got;
      std::vector<Work> sends;
      int tag = 0;
      for (int turn = 0; turn < 20; ++turn) {
        for (const std::int64_t size : sizes) {
          sent.push_back(bytes_of(size, group.rank() + tag));
          sends.push_back(group.send(sent.back(), to, tag++));
        }
      }
      while (tag-- > 0) {
        const Tensor want =
            bytes_of(sizes[static_cast<std::size_t>(tag) % std::size(sizes)], from + tag);
        const Tensor data = Tensor::zeros({want.numel()}, DType::u8);
        group.recv(data, from, tag).wait();
        same(data, want);
      }
      for (const Work& send : sends) send.wait();
    }));
  }
}

TEST_CASE("what nobody receives does not fill the receiver's memory, and stands in nobody's way") {
  for (const Lines lines : all_lines) {
    const int many = lines == Lines::rings ? 4000 : 1500;  // more than may wait
    constexpr int bytes = 1000;
    std::atomic<bool> looked{false};
    check_well(on_mailrooms(lines, 2, messages_alone, [&](const ProcessGroup& group) {
      const Tensor end = Tensor::zeros({1}, DType::u8);
      if (group.rank() == 0) {
        std::vector<Tensor> data;
        std::vector<Work> sends;
        for (int i = 0; i < many; ++i) {
          data.push_back(bytes_of(bytes, i));
          sends.push_back(group.send(data.back(), 1, 0));
        }
        const Work last = group.send(end, 1, 1);
        while (!looked) last.test();
        CHECK(sends.front().test());
        CHECK_FALSE(sends.back().test());  // it waits for its receiver
        group.send(end, 1, 2).wait();
        for (const Work& send : sends) send.wait();
        last.wait();
        return;
      }
      group.recv(end, 0, 1).wait();
      looked = true;
      group.recv(end, 0, 2).wait();
      for (int i = 0; i < many; ++i) {
        const Tensor data = Tensor::zeros({bytes}, DType::u8);
        group.recv(data, 0, 0).wait();
        same(data, bytes_of(bytes, i));
      }
    }));
  }
}

TEST_CASE("a message longer or shorter than its receiver expects is an error that names both") {
  for (const Lines lines : all_lines) {
    const auto meet = [lines](std::int64_t sent, std::int64_t expected, bool early) {
      std::atomic<bool> posted{false};
      const auto errors = on_mailrooms(lines, 2, messages_alone, [&](const ProcessGroup& group) {
        if (group.rank() == 0) {
          while (!early && !posted) std::this_thread::yield();
          group.send(Tensor::zeros({sent}, DType::u8), 1).wait();
          group.barrier().wait();
        } else {
          if (early) group.recv(Tensor::zeros({1}, DType::u8), 0, 9).test();
          const Work work = group.recv(Tensor::zeros({expected}, DType::u8), 0);
          posted = true;
          work.wait();
        }
      });
      check_has(errors[1], concat("expected ", expected, " bytes from rank 0, got ", sent));
      check_has(errors[0], concat("expected ", expected, " bytes from rank 0, got ", sent));
    };
    for (const bool early : {false, true}) {
      meet(3, 4, early);
      meet(100'000, 4, early);
      meet(4, 100'000, early);
      meet(100'000, 100'001, early);
    }
  }
}

TEST_CASE("groups within groups have messages of their own") {
  for (const Lines lines : all_lines) {
    check_well(on_mailrooms(lines, 4, messages_alone, [](const ProcessGroup& group) {
      const auto back = group.new_group({3, 2, 1, 0});
      const auto pair = group.split(group.rank() % 2);
      const auto talk = [](const ProcessGroup& among, int seed, std::vector<Work>& works,
                           std::vector<Tensor>& kept) {
        const int next = (among.rank() + 1) % among.world();
        for (const std::int64_t size : {10, 100'000}) {
          kept.push_back(bytes_of(size, seed + among.global_rank(among.rank())));
          works.push_back(among.send(kept.back(), next, 5));
        }
      };
      const auto hear = [](const ProcessGroup& among, int seed) {
        const int before = (among.rank() + among.world() - 1) % among.world();
        for (const std::int64_t size : {10, 100'000}) {
          const Tensor data = Tensor::zeros({size}, DType::u8);
          const Work work = among.recv(data, size == 10 ? any_source : before, 5);
          work.wait();
          if (size == 10) CHECK(work.source() == before);
          same(data, bytes_of(size, seed + among.global_rank(before)));
        }
      };
      std::vector<Work> works;
      std::vector<Tensor> kept;
      talk(group, 1, works, kept);
      talk(back, 2, works, kept);
      talk(pair, 3, works, kept);
      hear(pair, 3);
      hear(back, 2);
      hear(group, 1);
      for (const Work& work : works) work.wait();
    }));
  }
}

TEST_CASE("a rank that fails in the middle of a large message is named by the others") {
  for (const Lines lines : all_lines) {
    const auto errors = on_mailrooms(lines, 3, messages_alone, [](const ProcessGroup& group) {
      const Tensor large = Tensor::zeros({50'000'000}, DType::u8);
      if (group.rank() == 0) {
        const Work work = group.send(large, 1);
        for (int i = 0; i < 3; ++i) work.test();
        throw Error("the disk of rank 0 is full");
      }
      if (group.rank() == 1) group.recv(large, 0).wait();
      group.barrier().wait();
    });
    for (const std::string& error : errors) check_has(error, "the disk of rank 0 is full");
  }
}
