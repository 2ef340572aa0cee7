// SPDX-License-Identifier: Apache-2.0
// The store over TCP: who is let in, who is turned away, and what the others learn of who has gone.
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

// What a stranger sends to the port, and then hangs on.
class Stranger {
 public:
  Stranger(int port, const std::string& says) : descriptor_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    // The store may listen at ::1 alone.
    sockaddr_in6 other{};
    other.sin6_family = AF_INET6;
    other.sin6_port = address.sin_port;
    other.sin6_addr = in6addr_loopback;
    if (connect(descriptor_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      close(descriptor_);
      descriptor_ = socket(AF_INET6, SOCK_STREAM, 0);
      REQUIRE(connect(descriptor_, reinterpret_cast<sockaddr*>(&other), sizeof other) == 0);
    }
    REQUIRE(::send(descriptor_, says.data(), says.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(says.size()));
  }
  ~Stranger() { close(descriptor_); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

 private:
  int descriptor_;
};

// At a port of the loopback device: one that listens, or has it only.
Socket at_some_port(bool listens, int& port) {
  Socket holder(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(bind(holder.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(getsockname(holder.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  if (listens) REQUIRE(listen(holder.get(), 1) == 0);
  port = ntohs(address.sin_port);
  return holder;
}

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

TEST_CASE("strangers are turned away, and do no harm") {
  OverTcp tcp;
  const auto root = tcp.make(0, 3);
  std::string lie = "PEALsto3";
  lie += std::string("\x01\0\0\0\x01\0\0\0\x03\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\x7f", 24);
  const Stranger scanner(tcp.port(), ""), browser(tcp.port(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
      hesitant(tcp.port(), "PEALst"), liar(tcp.port(), lie),
      noise(tcp.port(), std::string(5000, 0));
  { const Stranger passing(tcp.port(), "PEALsto3"); }
  std::vector<std::string> turned_away(4);
  const auto errors = on_ranks(3, [&](int rank) {
    if (rank == 0) return check_exchanges(*root);
    if (rank == 1) {
      turned_away[0] = error_of([&] { tcp.make(2, 4)->exchange(""); });
      turned_away[1] = error_of([&] { tcp.make(2, 3, "run 2")->exchange(""); });
    }
    check_exchanges(*tcp.make(rank, 3));
  });
  for (const std::string& error : errors) CHECK(error == "nothing");
  CAPTURE(turned_away[0]);
  CHECK(contains(turned_away[0], "rank 2 of 4, here is a world of 3"));
  CAPTURE(turned_away[1]);
  CHECK(contains(turned_away[1], "of the run 'run 2', which this is not"));
  CHECK(!contains(turned_away[1], "run 1"));
}

TEST_CASE("who does not know the secret is turned away, both sides say so, and the job goes on") {
  OverTcp tcp;
  const std::string secret = "known to this job alone", another = "known to another";
  const auto root = tcp.make(0, 3, "run 1", secret);
  std::string of_another, of_none;
  const auto errors = on_ranks(3, [&](int rank) {
    if (rank == 0) return check_exchanges(*root);
    if (rank == 1) {
      of_another = error_of([&] { tcp.make(2, 3, "run 1", another)->exchange(""); });
      of_none = error_of([&] { tcp.make(2, 3)->exchange(""); });
    }
    check_exchanges(*tcp.make(rank, 3, "run 1", secret));
  });
  for (const std::string& error : errors) CHECK(error == "nothing");
  CAPTURE(of_another);
  CHECK(contains(of_another, "rank 2 of 3 at localhost port"));
  CHECK(contains(of_another, "it came as rank 2, and its secret (PEAL_STORE_SECRET) is another"));
  CAPTURE(of_none);
  CHECK(contains(of_none, "it has no secret (PEAL_STORE_SECRET), and this store has one"));

  // Rank 0 says who it was, when it has waited in vain.
  Tcp lonely("localhost", 0, 0, 2, {.deadline = milliseconds(1500)}, "", secret);
  Tcp stranger("localhost", lonely.port(), 1, 2, {}, "", another);
  CHECK(contains(error_of([&] { stranger.exchange(""); }), "is another"));
  const std::string vain = error_of([&] { lonely.exchange(""); });
  CAPTURE(vain);
  CHECK(contains(vain, "rank 1 did not connect; "));
  CHECK(
      contains(vain, "was turned away: it came as rank 1, and its secret (PEAL_STORE_SECRET) is"));
  CHECK(!contains(vain, secret));
  CHECK(!contains(vain, another));

  // A secret of one rank alone.
  Tcp open_to_all("localhost", 0, 0, 2);
  Tcp careful("localhost", open_to_all.port(), 1, 2, {}, "", secret);
  CHECK(contains(error_of([&] { careful.exchange(""); }), "and this store has none"));
}

TEST_CASE("who plays rank 0 at its port learns no secret, and is found out") {
  // It says welcome at once; after a challenge; or with the rank's own proof.
  for (const int cunning : {0, 1, 2}) {
    CAPTURE(cunning);
    int port = 0;
    const Socket listener = at_some_port(true, port);
    std::string heard;
    std::thread squatter([&] {
      Connection caller(Socket(accept(listener.get(), nullptr, nullptr)), "the rank", 4096);
      const auto next = [&] {
        for (;;) {
          const bool there = caller.pump();
          if (auto frame = caller.take()) return std::move(frame->body);
          if (!there) return std::string("gone");
          wait_for(caller);
        }
      };
      heard += next();
      std::string proof;
      if (cunning > 0) {
        caller.send({.kind = Frame::challenge, .body = "00112233445566778899aabbccddeeff"});
        caller.pump();
        heard += proof = next();
      }
      caller.send({.kind = Frame::welcome, .body = cunning == 2 ? proof : ""});
      caller.pump();
      heard += next();  // it leaves
    });
    Tcp rank("127.0.0.1", port, 1, 2, {.deadline = milliseconds(60'000)}, "", "the secret");
    const std::string error = error_of([&] { rank.exchange("a text"); });
    squatter.join();
    CAPTURE(error);
    CHECK(contains(error, "who listens there does not know the secret (PEAL_STORE_SECRET)"));
    CHECK(!contains(heard, "the secret"));
    CHECK(!contains(heard, "a text"));
  }
}

TEST_CASE("a rank is there once, and who waits in vain is told who was turned away") {
  OverTcp tcp;
  const auto root = tcp.make(0, 3);
  const auto errors = on_ranks(3, [&](int thread) {
    if (thread == 0) return check_exchanges(*root);
    // Two are rank 1. The one that comes second is turned away, and becomes rank 2.
    const auto store = tcp.make(1, 3);
    std::string first;
    try {
      first = store->exchange(text_of(1, 0)).at(1);
    } catch (const Error& error) {
      check_exchanges(*tcp.make(2, 3));
      throw;
    }
    PEAL_CHECK(first == text_of(1, 0), "another's text");
    for (int number = 1; number < 8; ++number) store->exchange(text_of(1, number));
  });
  CHECK(errors[0] == "nothing");
  const std::string& told = errors[1] == "nothing" ? errors[2] : errors[1];
  CAPTURE(told);
  CHECK((errors[1] == "nothing" || errors[2] == "nothing"));
  CHECK(contains(told, "rank 1 is here already"));

  Tcp lonely("localhost", 0, 0, 2, {.deadline = milliseconds(1500)});
  const Stranger browser(lonely.port(), "GET / HTTP/1.1");
  const std::string vain = error_of([&] { lonely.exchange(""); });
  CAPTURE(vain);
  CHECK(contains(vain, "'exchange 0, rank 1'; rank 1 did not connect; "));
  CHECK(contains(vain, "does not speak as a store of this version of peal does"));
}

TEST_CASE("a port that is taken, or at which nobody listens") {
  const Tcp root("127.0.0.1", 0, 0, 2);
  const std::string taken = error_of([&] { Tcp("127.0.0.1", root.port(), 0, 2); });
  CAPTURE(taken);
  CHECK(contains(taken, "cannot listen: Address already in use"));
  CHECK(contains(taken, "choose a free port"));
  // A port that somebody has, and does not listen at.
  int port = 0;
  const Socket holder = at_some_port(false, port);
  Tcp rank("127.0.0.1", port, 1, 2, {.deadline = milliseconds(200)});
  const std::string refused = error_of([&] { rank.exchange(""); });
  CAPTURE(refused);
  CHECK(contains(refused, "for rank 0 (Connection refused)"));
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

TEST_CASE("another program at the port is told from a rank 0 that is late") {
  int silent = 0, curt = 0;
  const Socket holder = at_some_port(true, silent), closes = at_some_port(true, curt);
  std::atomic<bool> over{false};
  std::thread closer([&] {
    while (!over) {
      pollfd polled{closes.get(), POLLIN, 0};
      if (poll(&polled, 1, 20) > 0) const Socket taken(accept(closes.get(), nullptr, nullptr));
    }
  });
  const auto errors = on_ranks(
      2, [&](int thread) { Tcp("127.0.0.1", thread == 0 ? silent : curt, 1, 2).exchange(""); });
  over = true;
  closer.join();
  CHECK(contains(errors[0], "has said nothing for 15 s, and is not rank 0: another program has"));
  CHECK(contains(errors[1], "connections without a word, and is not rank 0: another program has"));
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
