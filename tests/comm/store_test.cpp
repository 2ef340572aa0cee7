// SPDX-License-Identifier: Apache-2.0
// What a store promises, over files and over TCP alike; and the proof that opens one.
#include <peal/comm/store/hmac.h>
#include <peal/comm/store/open_store.h>

#include <cstdint>
#include <mutex>
#include <set>

#include "store_ranks.h"

using namespace peal;
using namespace peal::comm;
using namespace peal::testing;

namespace {

// Over files and over TCP, f on so many ranks, each with a store of its own.
void on_stores(int world, const std::function<void(Store&, int rank)>& f) {
  const Folder folder;
  OverTcp tcp;
  for (const std::string& error : on_ranks(world, [&](int rank) {
         FileStore store(folder.path, rank, world, {.deadline = milliseconds(60'000)});
         f(store, rank);
       })) {
    CHECK(error == "nothing");
  }
  for (const std::string& error : on_ranks(world, [&](int rank) {
         const auto over = tcp.make(rank, world);
         f(over->store, rank);
         over->exchange("");  // rank 0's store goes last
       })) {
    CHECK(error == "nothing");
  }
}

}  // namespace

TEST_CASE("who needs a value gets it when it is there, whoever sets it") {
  on_stores(4, [](Store& store, int rank) {
    const std::string odd = "a key/with\nanything: 100 %";
    if (rank == 3) store.set(odd, "first");
    CHECK(store.get(odd) == "first");
    // Round and round: each waits for the one before.
    for (int turn = 0; turn < 5; ++turn) {
      const auto key = [&](int r) { return concat("turn ", turn, ", rank ", r); };
      if (rank > 0) CHECK(store.get(key(rank - 1)) == concat(turn * 10 + rank - 1));
      store.set(key(rank), concat(turn * 10 + rank));
      CHECK(store.multi_get({key(3), key(0)}) ==
            std::vector<std::string>{concat(turn * 10 + 3), concat(turn * 10)});
    }
    CHECK(store.multi_get({}).empty());
    store.wait({});
  });
}

TEST_CASE("numbers are added one at a time") {
  std::mutex mutex;
  std::multiset<std::int64_t> sums;
  on_stores(4, [&](Store& store, int) {
    for (int i = 0; i < 25; ++i) {
      const std::int64_t sum = store.add("sum", 1);
      const std::lock_guard lock(mutex);
      sums.insert(sum);
    }
  });
  REQUIRE(sums.size() == 200);
  for (std::int64_t sum = 1; sum <= 100; ++sum) CHECK(sums.count(sum) == 2);  // over each
  on_stores(1, [](Store& store, int) {
    CHECK(store.add("n", -7) == -7);
    CHECK(store.add("n", 10) == 3);
    CHECK(store.add("n", 0) == 3);
    store.set("n", "12");
    CHECK(store.add("n", 1) == 13);
    store.set("n", "twelve");
    CHECK(contains(error_of([&] { store.add("n", 1); }), "the value of 'n' is no number"));
    store.remove({"n", "none"});
    CHECK(store.add("n", 1) == 1);
  });
}

TEST_CASE("values are replaced and removed, and who waits for one that went is told which") {
  const Folder folder;
  FileStore files(folder.path, 0, 1, {.deadline = milliseconds(100)});
  TcpStore tcp("localhost", 0, 0, 1, {.deadline = milliseconds(100)});
  for (Store* store : {static_cast<Store*>(&files), static_cast<Store*>(&tcp)}) {
    store->set("a", "1");
    store->set("a", "2");
    store->set("b", std::string("\0x", 2));
    CHECK(store->multi_get({"b", "a"}) == std::vector<std::string>{std::string("\0x", 2), "2"});
    store->remove({"a"});
    const std::string error = error_of([&] { store->multi_get({"b", "a"}); });
    CAPTURE(error);
    CHECK(contains(error, "waited 0.1 s (PEAL_TIMEOUT) for 'a'"));
  }
}

TEST_CASE("waiting ends where it has become hopeless, and long texts are refused") {
  const Patience patience{.hopeless = [] { fail("rank 7 is on fire"); }};
  const Folder folder;
  Files files(folder.path, 0, 2, patience);
  CHECK(error_of([&] { files.exchange(""); }) == "rank 7 is on fire");
  Tcp root("localhost", 0, 0, 2, patience);
  CHECK(error_of([&] { root.exchange(""); }) == "rank 7 is on fire");
  Files one(folder.path / "deeper", 0, 1);
  CHECK(one.exchange("alone") == std::vector<std::string>{"alone"});
  CHECK(contains(error_of([&] { one.exchange(std::string(most_store_bytes + 1, 'x')); }),
                 "expected at most 67108864"));
  for (const int rank : {0, 1}) {
    const auto make = [&](std::size_t size) {
      Tcp store("localhost", rank, rank, 2, {}, std::string(size, 'x'));
    };
    CHECK(error_of([&] { make(257); }) == "[store] a run of 257 bytes; expected at most 256");
    CHECK(error_of([&] { make(256); }) == "nothing");
  }
}

TEST_CASE("a store is opened by its address") {
  const Folder folder;
  const auto files = open_store("file:" + folder.path.string(), 0, 1);
  files->set("key", "a");
  CHECK(files->get("key") == "a");
  for (const char* address : {"tcp://localhost:1", "tcp://[::1]:65535/run", "tcp://10.0.0.1:80/"}) {
    CHECK(open_store(address, 1, 2) != nullptr);
  }
  for (const char* address : {"", "file:", "tcp:", "tcp://", "tcp://host", "tcp://host:", "mpi",
                              "tcp://host:0", "tcp://host:65536", "tcp://:80", "tcp://host:80x"}) {
    CAPTURE(address);
    CHECK(contains(error_of([&] { open_store(address, 1, 2); }), "expected file:FOLDER"));
  }
  CHECK(contains(error_of([&] { open_store("file:" + folder.path.string(), 0, 1, {}, "x"); }),
                 "PEAL_STORE_SECRET: only a store over TCP has one"));
}

TEST_CASE("HMAC-SHA256 is what RFC 4231 says") {
  const std::string key(20, '\x0b'), long_key(131, '\xaa');
  CHECK(hmac_sha256(key, "Hi There") ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(hmac_sha256("Jefe", "what do ya want for nothing?") ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hmac_sha256(std::string(20, '\xaa'), std::string(50, '\xdd')) ==
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  CHECK(hmac_sha256(long_key, "Test Using Larger Than Block-Size Key - Hash Key First") ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  CHECK(hmac_sha256(long_key,
                    "This is a test using a larger than block-size key and a larger than "
                    "block-size data. The key needs to be hashed before being used by the HMAC "
                    "algorithm.") ==
        "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
  CHECK(equal_proofs("abc", "abc"));
  CHECK(!equal_proofs("abc", "abd"));
  CHECK(!equal_proofs("abc", "ab"));
  CHECK(nonce().size() == 32);
  CHECK(nonce() != nonce());
}
