// SPDX-License-Identifier: Apache-2.0
// Rendezvous over stores: texts of all ranks go round, between threads and between processes, and
// who does not come is named. Nothing here waits for a time to pass but ranks that wait in vain, by
// their deadline.
#include "store_ranks.h"

using namespace peal;
using namespace peal::comm;
using namespace peal::testing;

TEST_CASE("texts of every length go round at 1 to 5 ranks") {
  for (int world = 1; world <= 5; ++world) {
    CAPTURE(world);
    const Folder folder;
    OverTcp tcp;
    for (const Maker& make : {files_in(folder.path), tcp.maker()}) {
      const auto errors = on_ranks(world, [&](int rank) {
        const auto store = make(rank, world);
        CHECK(store->rank() == rank);
        CHECK(store->world() == world);
        check_exchanges(*store);
      });
      for (const std::string& error : errors) CHECK(error == "nothing");
    }
    CHECK(folder.entries() == 0);  // each exchange has cleaned up
  }
}

TEST_CASE("two rendezvous of one name on one store do not read each other's texts") {
  constexpr int world = 3, rounds = 50;
  const Folder folder;
  const auto errors = on_ranks(world, [&](int rank) {
    FileStore store(folder.path, rank, world, {.deadline = milliseconds(20'000)});
    for (int round = 0; round < rounds; ++round) {
      for (const char* which : {"first", "second"}) {
        StoreRendezvous ranks(store, rank, world, "name");
        const auto texts = ranks.exchange(concat(which, " ", round, " of ", rank));
        for (int r = 0; r < world; ++r) {
          const std::string& got = texts[static_cast<std::size_t>(r)];
          PEAL_CHECK(got == concat(which, " ", round, " of ", r), "rank ", rank, " got ", got);
        }
      }
    }
  });
  for (const std::string& error : errors) CHECK(error == "nothing");
  CHECK(folder.entries() == 0);
}

TEST_CASE("ranks are processes") {
  const Folder folder;
  const Maker over_files = files_in(folder.path);
  std::vector<pid_t> children;
  for (int rank = 1; rank < 3; ++rank) {
    children.push_back(in_process([&] { check_exchanges(*over_files(rank, 3)); }));
  }
  check_exchanges(*over_files(0, 3));
  Tcp root("127.0.0.1", 0, 0, 3);
  for (int rank = 1; rank < 3; ++rank) {
    children.push_back(in_process([&] {
      Tcp store("127.0.0.1", root.port(), rank, 3);
      check_exchanges(store);
    }));
  }
  check_exchanges(root);
  for (const pid_t child : children) CHECK(ended_well(child));
}

TEST_CASE("a rank that never comes is named by those who waited") {
  const Folder folder;
  OverTcp tcp(milliseconds(1500));
  // Over TCP the others outwait rank 0, which else, if it began later, would see one of them leave.
  const Maker over_tcp = [&](int rank, int world) -> std::unique_ptr<Rendezvous> {
    if (rank == 0) return tcp.make(rank, world);
    return std::make_unique<Tcp>("localhost", tcp.port(), rank, world, Patience{}, "run 1");
  };
  for (const Maker& make : {files_in(folder.path, milliseconds(1500)), over_tcp}) {
    const auto errors = on_ranks(4, [&](int rank) {
      const auto store = make(rank, 4);
      if (rank != 2) store->exchange("here");
    });
    CAPTURE(errors[0]);
    CHECK(contains(errors[0], "rank 0 of 4"));
    CHECK(contains(errors[0], "waited 1.5 s (PEAL_TIMEOUT) for "));
    CHECK(contains(errors[0], "rank 2"));
    for (const int rank : {1, 3}) CHECK(errors[static_cast<std::size_t>(rank)] != "nothing");
  }
}
