// SPDX-License-Identifier: Apache-2.0
// Ranks of several nodes get their connections; strangers get none.
#include <peal/comm/store/connection.h>
#include <peal/comm/store/hmac.h>
#include <peal/comm/transport/tcp/addresses.h>
#include <peal/comm/transport/tcp/joining.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "store_ranks.h"

using namespace peal;
using namespace peal::comm;
using namespace peal::testing;

namespace {

std::vector<int> others_of(int rank, int world) {
  std::vector<int> others(static_cast<std::size_t>(world));
  std::iota(others.begin(), others.end(), 0);
  std::erase(others, rank);
  return others;
}

// A word each way over each connection.
void check_joined(Joining& joining, int rank, int world) {
  PEAL_CHECK(static_cast<int>(joining.joined.size()) == world - 1, "got ", joining.joined.size());
  for (const auto& [peer, joined] : joining.joined) {
    check_has(joined.who, concat("rank ", peer, " ("));
    const int said = 100 * rank + peer;
    PEAL_CHECK(send(joined.socket.get(), &said, sizeof said, MSG_NOSIGNAL) == sizeof said, "send");
  }
  for (const auto& [peer, joined] : joining.joined) {
    int heard = 0;
    while (recv(joined.socket.get(), &heard, sizeof heard, MSG_DONTWAIT) < 0) {
      PEAL_CHECK(errno == EAGAIN, "recv from rank ", peer);
      std::this_thread::yield();
    }
    PEAL_CHECK(heard == 100 * peer + rank, "rank ", peer, " said ", heard);
  }
}

// A rendezvous that others look into.
class Overheard : public Rendezvous {
 public:
  Overheard(std::unique_ptr<Rendezvous> ranks, std::vector<std::string>& said)
      : ranks_(std::move(ranks)), said_(said) {}
  int rank() const override { return ranks_->rank(); }
  int world() const override { return ranks_->world(); }
  std::vector<std::string> exchange(const std::string& mine) override {
    return said_ = ranks_->exchange(mine);
  }

 private:
  std::unique_ptr<Rendezvous> ranks_;
  std::vector<std::string>& said_;
};

int connected_to(int port) {
  const int stranger = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(connect(stranger, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  return stranger;
}

}  // namespace

TEST_CASE("hello: who knows the key is let in, and nobody else") {
  const std::string key = key_of_job("secret", {"a", "b"});
  CHECK(key != key_of_job("secret", {"a", "c"}));
  CHECK(key != key_of_job("", {"a", "b"}));
  const TcpHello hello{.from = 70000, .to = 3, .world = 100000, .nonce = std::string(32, 'f')};
  const std::string bytes = encode(hello, key);
  REQUIRE(bytes.size() == TcpHello::size);
  REQUIRE(welcome_to(hello, key).size() == TcpHello::welcome_size);
  const TcpHello again = hello_in(bytes, key);
  CHECK(again.from == hello.from);
  CHECK(again.to == hello.to);
  CHECK(again.world == hello.world);
  CHECK(again.nonce == hello.nonce);
  check_has(error_of([&] {
              (void)hello_in(bytes, key_of_job("", {"a", "b"}));
            }),
            "rank 70000 of 100000, and does not know");
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::string other = bytes;
    other[at] = static_cast<char>(other[at] ^ 1);
    CHECK(error_of([&] { (void)hello_in(other, key); }) != "nothing");
  }
  CHECK(error_of([&] { (void)hello_in(bytes.substr(1), key); }) != "nothing");
}

TEST_CASE("addresses in one net come first, those that are one's own last") {
  const std::vector<std::string> own = {"10.0.0.4/24", "172.17.0.1/16", "2001:db8::1/64"};
  CHECK(in_order({"172.17.0.1/16", "192.168.1.5/24", "10.0.0.9/24", "2001:db8::2/64"}, own) ==
        std::vector<std::string>{"10.0.0.9", "2001:db8::2", "192.168.1.5", "172.17.0.1"});
  CHECK(in_order({"10.0.1.9/24", "nonsense"}, own) ==
        std::vector<std::string>{"10.0.1.9", "nonsense"});
  CHECK(in_order({}, own).empty());
  for (const std::string& each : own_addresses()) CHECK(contains(each, "/"));
  setenv("PEAL_SOCKET_IFNAME", "no-such-device", 1);
  check_has(error_of([] { (void)own_addresses(); }),
            "PEAL_SOCKET_IFNAME: no device 'no-such-device' here is up");
  setenv("PEAL_SOCKET_IFNAME", "lo", 1);
  CHECK(std::ranges::count(own_addresses(), "127.0.0.1/8") == 1);
  unsetenv("PEAL_SOCKET_IFNAME");
}

TEST_CASE("1 to 5 ranks are joined, with a secret and without") {
  for (int world = 1; world <= 5; ++world) {
    const Folder folder;
    const Maker store = files_in(folder.path / "store");
    for (const std::string& error : on_ranks(world, [&](int rank) {
           const auto ranks = store(rank, world);
           for (const std::string secret : {"", "known to them"}) {
             Joining joining(*ranks, others_of(rank, world), "machine", secret);
             joining.meet({.deadline = milliseconds(60'000)});
             check_joined(joining, rank, world);
           }
         })) {
      CHECK(error == "nothing");
    }
  }
}

TEST_CASE("strangers are turned away without a word, and ranks come all the same") {
  const Folder folder;
  const Maker store = files_in(folder.path / "store");
  std::atomic<bool> strangers_were_there{false};
  const auto errors = on_ranks(3, [&](int rank) {
    std::vector<std::string> said;
    Overheard ranks(store(rank, 3), said);
    Joining joining(ranks, others_of(rank, 3), "machine", "known to them");
    if (rank != 0) {
      while (!strangers_were_there) std::this_thread::yield();
      joining.meet({.deadline = milliseconds(60'000)});
      return check_joined(joining, rank, 3);
    }
    const int port = std::stoi(parted(said[0])[2]);
    std::vector<std::string> nonces;
    for (const std::string& each : said) nonces.push_back(parted(each)[0]);
    // One that has read the store's exchange, but has no secret; one that plays another's part; a
    // browser; a mute.
    const std::string guessed = key_of_job("", nonces), key = key_of_job("known to them", nonces);
    const TcpHello of_rank{.from = 2, .to = 0, .world = 3, .nonce = nonce()},
        of_other{.from = 2, .to = 1, .world = 3, .nonce = nonce()};
    std::vector<int> strangers;
    for (const std::string& says : {encode(of_rank, guessed), encode(of_other, key),
                                    std::string("GET / HTTP/1.1\r\n\r\n"), std::string()}) {
      strangers.push_back(connected_to(port));
      PEAL_CHECK(send(strangers.back(), says.data(), says.size(), MSG_NOSIGNAL) ==
                     static_cast<ssize_t>(says.size()),
                 "send");
    }
    std::thread late([&] {
      std::this_thread::sleep_for(milliseconds(50));
      strangers_were_there = true;
    });
    joining.meet({.deadline = milliseconds(60'000)});
    late.join();
    check_joined(joining, rank, 3);
    for (const int stranger : strangers) {
      char byte = 0;
      CHECK(recv(stranger, &byte, 1, 0) <= 0);
      close(stranger);
    }
  });
  for (const std::string& error : errors) CHECK(error == "nothing");
}

TEST_CASE("a call that its caller has given up is not taken for the one that it makes then") {
  const Folder folder;
  const Maker store = files_in(folder.path / "store");
  std::atomic<bool> given_up{false};
  const auto errors = on_ranks(3, [&](int rank) {
    std::vector<std::string> said;
    Overheard ranks(store(rank, 3), said);
    Joining joining(ranks, others_of(rank, 3), "machine", "");
    if (rank != 0) {
      while (!given_up) std::this_thread::yield();
      joining.meet({.deadline = milliseconds(20'000)});
      return check_joined(joining, rank, 3);
    }
    std::vector<std::string> nonces;
    for (const std::string& each : said) nonces.push_back(parted(each)[0]);
    const std::string key = key_of_job("", nonces);
    // As rank 2, that calls this one: before it looks, and when it has said welcome.
    std::vector<int> calls;
    for (int i = 0; i < 2; ++i) {
      const std::string hello = encode({.from = 2, .to = 0, .world = 3, .nonce = nonce()}, key);
      calls.push_back(connected_to(std::stoi(parted(said[0])[2])));
      PEAL_CHECK(send(calls.back(), hello.data(), hello.size(), MSG_NOSIGNAL) ==
                     static_cast<ssize_t>(hello.size()),
                 "send");
    }
    close(calls[0]);
    std::thread caller([&] {
      char welcome[TcpHello::welcome_size];
      if (recv(calls[1], welcome, sizeof welcome, MSG_WAITALL) != sizeof welcome) MESSAGE("none");
      close(calls[1]);
      given_up = true;
    });
    const std::string error = error_of([&] { joining.meet({.deadline = milliseconds(20'000)}); });
    caller.join();
    CHECK(error == "nothing");
    check_joined(joining, rank, 3);
  });
  for (const std::string& error : errors) CHECK(error == "nothing");
}

TEST_CASE("ranks of other secrets, and those that do not come, are named by who waits for them") {
  const Folder folder;
  const Maker store = files_in(folder.path / "store");
  const auto errors = on_ranks(3, [&](int rank) {
    const auto ranks = store(rank, 3);
    Joining joining(*ranks, others_of(rank, 3), "machine", rank == 2 ? "another" : "one");
    joining.meet({.deadline = milliseconds(1500)});
  });
  // One of them may see that the other has given up, a moment before it does.
  CHECK(contains(errors[0] + errors[1], "(PEAL_TIMEOUT) for rank 2 on "));
  for (const int rank : {0, 1}) {
    const std::string& error = errors[static_cast<std::size_t>(rank)];
    check_has(error, " for rank 2 on ");
    CHECK(!contains(error, concat("for rank ", 1 - rank)));
  }
  check_has(errors[2], "rank 0 on ");
  check_has(errors[2], "rank 1 on ");
}

TEST_CASE("one that is gone before it comes ends the waiting for it, as the store knows") {
  for (const int gone : {0, 1}) {
    OverTcp tcp;
    const auto errors = on_ranks(2, [&](int rank) {
      const auto ranks = tcp.make(rank, 2);
      Joining joining(*ranks, others_of(rank, 2), "machine", "");
      PEAL_CHECK(rank != gone, "it is out of memory");
      joining.meet({.deadline = milliseconds(20'000)});
    });
    check_has(errors[static_cast<std::size_t>(1 - gone)],
              concat("rank ", gone, " has closed its connection: its process"));
  }
}

TEST_CASE("who has no descriptor to call with says so") {
  const Folder folder;
  const Maker store = files_in(folder.path / "store");
  const pid_t caller = in_process([&] {
    const auto ranks = store(0, 2);
    Joining joining(*ranks, {1}, "machine", "");
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    const auto last = static_cast<rlim_t>(dup(0));
    const rlimit none{last, limit.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    const std::string error = error_of([&] { joining.meet({.deadline = milliseconds(5000)}); });
    setrlimit(RLIMIT_NOFILE, &limit);
    PEAL_CHECK(contains(error, "rank 0 can take no more connections with 1 to come: Too many open"),
               error);
  });
  const auto ranks = store(1, 2);
  const Joining joining(*ranks, {0}, "machine", "");
  CHECK(ended_well(caller));
}

TEST_CASE("one that came and is gone ends the waiting for others") {
  const Folder folder;
  const Maker store = files_in(folder.path / "store");
  std::atomic<bool> over{false};
  const auto errors = on_ranks(3, [&](int rank) {
    const auto ranks = store(rank, 3);
    if (rank == 1) {  // it fails as soon as it has met rank 0
      Joining joining(*ranks, {0}, "machine", "");
      return joining.meet({.deadline = milliseconds(20'000)});
    }
    Joining joining(*ranks, others_of(rank, 3), "machine", "");
    while (rank == 2 && !over) std::this_thread::yield();
    if (rank == 2) return;
    const std::string error = error_of([&] { joining.meet({.deadline = milliseconds(20'000)}); });
    over = true;
    check_has(error, "[tcp] rank 0: rank 1 (");
    check_has(error, " is gone (it closed the connection) while this one waited for rank 2 on ");
  });
  for (const std::string& error : errors) CHECK(error == "nothing");
}
