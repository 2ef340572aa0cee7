// SPDX-License-Identifier: Apache-2.0
// The store over TCP: who is turned away, what is said of it, and ports that others have.
#include <peal/comm/store/connection.h>
#include <peal/comm/store/tcp_listener.h>

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>

#include "store_ranks.h"

using namespace peal;
using namespace peal::comm;
using namespace peal::testing;

namespace {

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

}  // namespace

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
