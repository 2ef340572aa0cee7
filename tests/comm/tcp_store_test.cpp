// SPDX-License-Identifier: Apache-2.0
// The store over TCP: how ranks meet, and what the others learn of who has gone. Who is turned
// away: tcp_store_strangers_test.cpp.
#include <peal/comm/store/connection.h>
#include <peal/comm/store/tcp_listener.h>

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdint>

#include "store_ranks.h"

using namespace peal;
using namespace peal::comm;
using namespace peal::testing;

namespace {

std::atomic<int> kept_alive{0};

// A child by fork() that calls the store and lets go of it.
void end_in_child(std::unique_ptr<Tcp>& store) {
  const pid_t child = in_process([&] {
    alarm(30);
    const std::string error = error_of([&] { store->store.set("a child", "was here"); });
    PEAL_CHECK(contains(error, "a child by fork has no store"), error);
    store.reset();
  });
  PEAL_CHECK(ended_well(child), "the child has failed");
}

}  // namespace

// The system's own, counted.
extern "C" int setsockopt(int socket, int level, int name, const void* value, socklen_t size) {
  if (level == SOL_SOCKET && name == SO_KEEPALIVE) ++kept_alive;
  using Call = int(int, int, int, const void*, socklen_t);
  return reinterpret_cast<Call*>(dlsym(RTLD_NEXT, "setsockopt"))(socket, level, name, value, size);
}

TEST_CASE("a process that is killed between two exchanges is named, and all are told") {
  Tcp root("localhost", 0, 0, 3);
  const pid_t victim = in_process([&] {
    Tcp store("localhost", root.port(), 1, 3);
    store.exchange("");
    for (;;) pause();
  });
  const pid_t witness = in_process([&] {
    Tcp store("localhost", root.port(), 2, 3);
    store.exchange("");
    const std::string told = error_of([&] { store.exchange("again"); });
    PEAL_CHECK(contains(told, "rank 1 has closed its connection"), told);
    const std::string later = error_of([&] { store.exchange("again"); });
    PEAL_CHECK(contains(later, "an earlier call has failed"), later);
  });
  root.exchange("");
  kill(victim, SIGKILL);
  const std::string error = error_of([&] { root.exchange("again"); });
  CAPTURE(error);
  CHECK(contains(error, "rank 1 has closed its connection"));
  CHECK(!ended_well(victim));
  CHECK(ended_well(witness));

  // And rank 0 itself.
  auto lost = std::make_unique<Tcp>("localhost", 0, 0, 2);
  const int port = lost->port();
  const pid_t left = in_process([&] {
    Tcp store("localhost", port, 1, 2);
    store.exchange("");
    const std::string told = error_of([&] { store.exchange("again"); });
    PEAL_CHECK(contains(told, "rank 0 has closed its connection"), told);
  });
  lost->exchange("");
  lost.reset();
  CHECK(ended_well(left));
}

TEST_CASE("a child by fork has no store, and its end is nothing to the others") {
  auto root = std::make_unique<Tcp>("localhost", 0, 0, 2);
  const pid_t other = in_process([&] {
    auto store = std::make_unique<Tcp>("localhost", root->port(), 1, 2);
    store->exchange("");
    end_in_child(store);
    PEAL_CHECK(store->exchange("again")[0] == "of rank 0", "another text");
  });
  root->exchange("");
  end_in_child(root);
  root->exchange("of rank 0");
  CHECK(ended_well(other));

  // Over files, before the others have come.
  const Folder folder;
  auto first = std::make_unique<Files>(folder.path, 0, 2);
  CHECK(ended_well(in_process([&] { first.reset(); })));
  const auto errors = on_ranks(2, [&](int rank) {
    if (rank == 0) return check_exchanges(*first);
    Files second(folder.path, 1, 2, {.deadline = milliseconds(20'000)});
    check_exchanges(second);
  });
  for (const std::string& error : errors) CHECK(error == "nothing");
}

TEST_CASE("jobs that look alike and meet at one port are told so, on all their ranks") {
  const std::string twice = "two processes are rank 1 of 2 at port", advice = "(PEAL_STORE_SECRET)";
  {
    Tcp root("localhost", 0, 0, 2);
    const auto errors = on_ranks(3, [&](int thread) {
      const auto until_it_fails = [](Rendezvous& ranks) {
        for (;;) ranks.exchange("");
      };
      if (thread == 0) return until_it_fails(root);
      Tcp rank("localhost", root.port(), 1, 2);
      until_it_fails(rank);
    });
    for (const std::string& error : errors) {
      CAPTURE(error);
      CHECK(contains(error, twice));
      CHECK(contains(error, advice));
    }
  }
  {  // the other job's rank 0
    Tcp root("localhost", 0, 0, 2);
    std::string told;
    root.store.at_crossing([&](const std::string& what) { told = what; });
    const std::string taken = error_of([&] { Tcp("localhost", root.port(), 0, 2); });
    CHECK(contains(taken, "cannot listen: Address already in use"));
    const std::string error = error_of([&] { root.exchange(""); });
    CAPTURE(error);
    CHECK(contains(error, "two processes are rank 0 of 2 at port"));
    CHECK(told == error);
  }
  OverTcp tcp;  // those of one name can't, but for one whose rank 0 comes in vain
  const auto root = tcp.make(0, 2);
  CHECK(contains(error_of([&] { Tcp("localhost", tcp.port(), 0, 2, {}, "run 1"); }), "in use"));
  CHECK(contains(error_of([&] { Tcp("localhost", tcp.port(), 0, 2); }), "in use"));
  const auto errors = on_ranks(
      2, [&](int rank) { rank == 0 ? check_exchanges(*root) : check_exchanges(*tcp.make(1, 2)); });
  for (const std::string& error : errors) CHECK(error == "nothing");
}

TEST_CASE("one store may follow another at one port, whoever is first") {
  auto root = std::make_unique<Tcp>("localhost", 0, 0, 3);
  const int port = root->port();
  std::promise<void> first_again;
  const auto errors = on_ranks(3, [&](int rank) {
    for (int turn = 0; turn < 2; ++turn) {
      if (rank == 0 && turn == 1) {
        first_again.get_future().wait();  // rank 1 has been at the first store again
        root.reset();
        root = std::make_unique<Tcp>("localhost", port, 0, 3);
      }
      auto own = rank == 0 ? nullptr : std::make_unique<Tcp>("localhost", port, rank, 3);
      if (rank == 1 && turn == 1) {
        Tcp early("localhost", port, 1, 3, {.deadline = milliseconds(300)});
        const std::string error = error_of([&] { early.exchange(""); });
        first_again.set_value();
        PEAL_CHECK(contains(error, "waited 0.3 s"), error);
      }
      check_exchanges(rank == 0 ? *root : *own, 2);
    }
  });
  for (const std::string& error : errors) CHECK(error == "nothing");
}

TEST_CASE("rank 0 listens at the address that is named, and at no other") {
  const auto reaches = [](const char* host, int port) {
    const Socket socket(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    REQUIRE(inet_pton(AF_INET, host, &address.sin_addr) == 1);
    return connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  };
  {
    Tcp root("127.0.0.2", 0, 0, 2);  // of the loopback device, as all of 127
    CHECK(reaches("127.0.0.2", root.port()));
    CHECK_FALSE(reaches("127.0.0.1", root.port()));
    const auto errors = on_ranks(2, [&](int rank) {
      if (rank == 0) return check_exchanges(root);
      Tcp other("127.0.0.2", root.port(), 1, 2);
      check_exchanges(other);
    });
    for (const std::string& error : errors) CHECK(error == "nothing");
  }
  const auto said = [](const std::string& secret) {
    return stderr_of([&] { TcpStore("any-name.invalid", 0, 0, 2, {}, "", secret); });
  };
  check_has(said(""), "listens on all devices of this machine, and without a secret");
  CHECK(said("a secret").empty());
  const TcpStore everywhere("0.0.0.0", 0, 0, 2);
  CHECK(reaches("127.0.0.1", everywhere.port()));
  CHECK(reaches("127.0.0.2", everywhere.port()));
  const std::string error = error_of([] { TcpStore("192.0.2.1", 4242, 0, 2); });  // nobody's
  CAPTURE(error);
  CHECK(contains(error, "at 192.0.2.1 port 4242 cannot listen: this machine has no such address"));
}

TEST_CASE("rank 0 serves the others whatever it does itself") {
  OverTcp tcp;
  std::promise<void> over;
  const auto errors = on_ranks(3, [&](int rank) {
    const auto ranks = tcp.make(rank, 3);
    if (rank == 0) return over.get_future().wait();  // no call of its own
    ranks->store.set(concat("from ", rank), "x");
    ranks->store.wait({"from 1", "from 2"});
    if (ranks->store.add("over", 1) == 2) over.set_value();
  });
  for (const std::string& error : errors) CHECK(error == "nothing");
}

TEST_CASE("where descriptors run out all are told, with what to do") {
  constexpr int world = 12;
  int channel[2];
  REQUIRE(pipe(channel) == 0);
  const pid_t root = in_process([&] {
    const auto open = static_cast<rlim_t>(dup(0));  // the lowest that is free
    const rlimit few{open + 8, open + 8};
    setrlimit(RLIMIT_NOFILE, &few);
    Tcp store("localhost", 0, 0, world, {.deadline = milliseconds(60'000)});
    const int port = store.port();
    PEAL_CHECK(write(channel[1], &port, sizeof port) == sizeof port, "no pipe");
    const std::string told = error_of([&] { store.exchange("here"); });
    PEAL_CHECK(contains(told, "Too many open files; raise the limit of open files (ulimit -n)"),
               told);
  });
  int port = 0;
  REQUIRE(read(channel[0], &port, sizeof port) == sizeof port);
  const auto errors = on_ranks(world - 1, [&](int thread) {
    Tcp("localhost", port, thread + 1, world, {.deadline = milliseconds(3000)}).exchange("here");
  });
  CHECK(ended_well(root));
  int told = 0;
  for (const std::string& error : errors) {
    CHECK(error != "nothing");
    told += contains(error, "ulimit -n") ? 1 : 0;
  }
  CHECK(told > 0);
  close(channel[0]);
  close(channel[1]);
}

// Ranks that only say who they are: a process of this one's has no room for so many stores.

TEST_CASE("1100 ranks and 1024 open files end with what to do") {
  constexpr int world = 1100;
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const rlimit many{std::min<rlim_t>(limit.rlim_max, world + 200), limit.rlim_max};
  int channel[2];
  REQUIRE(pipe(channel) == 0);
  const Folder folder;
  const pid_t root = in_process([&] {
    const rlimit few{1024, limit.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    Tcp store("127.0.0.1", 0, 0, world, {.deadline = milliseconds(60'000)}, "run 1");
    const int port = store.port();
    PEAL_CHECK(write(channel[1], &port, sizeof port) == sizeof port, "no pipe");
    std::ofstream(folder.path / "told") << error_of([&] { store.exchange("here"); });
  });
  int port = 0;
  REQUIRE(read(channel[0], &port, sizeof port) == sizeof port);
  if (many.rlim_cur < world + 200 || setrlimit(RLIMIT_NOFILE, &many) != 0) {
    MESSAGE("left out: this user may not open so many files");
    kill(root, SIGKILL);
    waitpid(root, nullptr, 0);
    return;
  }
  Tcp rank_1("127.0.0.1", port, 1, world, {.deadline = milliseconds(60'000)}, "run 1");
  rank_1.store.set("here", "");
  std::vector<std::unique_ptr<Connection>> others;
  for (std::uint32_t rank = 2; rank < world; ++rank) {
    Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    if (connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) break;
    others.push_back(std::make_unique<Connection>(std::move(socket), "rank 0", 4096));
    others.back()->send(frame_of(Hello{rank, world, "run 1", ""}));
    others.back()->pump();
  }
  const std::string first = error_of([&] { rank_1.exchange(""); });
  CHECK(ended_well(root));
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  const std::string told = content_of(folder.path / "told");
  MESSAGE("rank 0: " << told);
  MESSAGE("rank 1: " << first);
  for (const std::string& error : {told, first}) {
    check_has(error, "rank 0 of 1100 at 127.0.0.1 port ");
    check_has(error, " of 1100 ranks there: Too many open files; raise the limit of open files");
    check_has(error, "(ulimit -n) to 1164 at least");
  }
  close(channel[0]);
  close(channel[1]);
}

TEST_CASE("both ends ask whether the other's host is there still") {
  const int before = kept_alive;
  OverTcp tcp;
  on_ranks(2, [&](int rank) { tcp.make(rank, 2)->exchange(""); });
  CHECK(kept_alive - before >= 2);
}
