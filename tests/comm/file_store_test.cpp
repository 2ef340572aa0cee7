// SPDX-License-Identifier: Apache-2.0
// The store over files: what else may lie in its folder, and what it writes there.
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <fstream>

#include "store_ranks.h"

using namespace peal;
using namespace peal::comm;
using namespace peal::testing;

namespace {

std::atomic<int> files_written{0};

}  // namespace

// The system's own, counted. A file appears whole by being renamed.
extern "C" int rename(const char* from, const char* to) {
  ++files_written;
  using Call = int(const char*, const char*);
  return reinterpret_cast<Call*>(dlsym(RTLD_NEXT, "rename"))(from, to);
}

TEST_CASE("files of an earlier run are not believed") {
  const Folder folder;
  // Of ranks that were killed: rank 1 had seen rank 0, and the list of another run was there.
  const auto left = [&](const char* name, const char* text) {
    std::ofstream(folder.path / name) << text;
  };
  left("peal-store-2.0", "peal-store-2 2 0 00112233 -");
  left("peal-store-2.1", "peal-store-2 2 1 44556677 00112233");
  left("peal-store-2.all", "peal-store-2 2 00112233 44556677");
  left("peal-store-2.00112233.exchange%200%2c%20rank%201", "of a rank that was killed");
  left("peal-store-2.3", "half a fi");
  const Maker alone = files_in(folder.path, milliseconds(50));
  CHECK(contains(error_of([&] { alone(1, 2)->exchange("old"); }), "for rank 0, or a rank"));
  left("peal-store-2.1", "peal-store-2 2 1 44556677 00112233");
  CHECK(contains(error_of([&] { alone(0, 2)->exchange("old"); }), "for rank 1 to come"));
  left("peal-store-2.0", "peal-store-2 2 0 00112233 -");
  const Maker make = files_in(folder.path);
  for (const std::string& error : on_ranks(2, [&](int rank) { check_exchanges(*make(rank, 2)); })) {
    CHECK(error == "nothing");
  }
  CHECK(folder.entries() == 2);  // strangers'
}

TEST_CASE("a folder is one job's, of one world, and can be written") {
  const Folder folder;
  const Maker make = files_in(folder.path);
  // Two processes are rank 0: the later takes the place, and the earlier says so.
  const auto first = make(0, 2), second = make(0, 2);
  const std::string twice = error_of([&] { first->exchange(""); });
  CAPTURE(twice);
  CHECK(contains(twice, "another process is rank 0"));
  const auto worlds = on_ranks(2, [&](int rank) { make(rank, 2 + rank)->exchange(""); });
  CAPTURE(worlds[0]);
  CHECK(contains(worlds[0], "met rank 1 of 3"));
  std::ofstream(folder.path / "file") << "not a folder";
  CHECK(contains(error_of([&] { FileStore(folder.path / "file" / "deep", 0, 1); }),
                 "cannot be made"));
}

TEST_CASE("meeting in a folder costs each rank a few files, however many ranks there are") {
  constexpr int world = 16;
  const Folder folder;
  const int before = files_written;
  for (const std::string& error :
       on_ranks(world, [&](int rank) { Files(folder.path, rank, world).exchange("here"); })) {
    CHECK(error == "nothing");
  }
  const int written = files_written - before;
  CHECK(written >= 2 * world);
  CHECK(written <= 4 * world);
}

TEST_CASE("a number is never seen half written, nor before it is one") {
  const Folder folder;
  constexpr int keys = 60, rounds = 30;
  const auto errors = on_ranks(2, [&](int rank) {
    FileStore store(folder.path, rank, 2, {.deadline = milliseconds(20'000)});
    for (int key = 0; key < keys; ++key) {
      const std::string name = concat("n", key);
      if (rank == 1) {
        for (int i = 0; i < rounds; ++i)
          store.add(name, i % 2 == 0 ? 1'000'000'007 : -1'000'000'006);
        continue;
      }
      for (int i = 0; i < rounds; ++i) {
        const std::string value = store.get(name);
        PEAL_CHECK(!value.empty(), "saw nothing");
        PEAL_CHECK(value.size() == 10 || value == "1" ||
                       (value.size() <= 2 && std::stoi(value) <= rounds / 2),
                   "saw '", value, "'");
      }
    }
  });
  for (const std::string& error : errors) CHECK(error == "nothing");
}
