// SPDX-License-Identifier: Apache-2.0
// Lines over TCP: messages that are given up or left, other ends that take nothing in or are gone,
// and children by fork.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include "tcp_ends.h"

using namespace peal;
using namespace peal::comm;
using namespace peal::testing;

TEST_CASE("a large message that is given up in the middle leaves a stream that others use") {
  Ours ours;
  std::string large(std::size_t{8} << 20, 'l'), small(3, 's');
  const Ticket given_up = ours.sends(large);
  CHECK(ours.hears_frame(0).kind == TcpFrame::Kind::offer);
  ours.says(frame_of(TcpFrame::Kind::accept, 0, 0));
  CHECK_FALSE(ours.room->test(given_up));
  ours.room->cancel(given_up);
  std::fill(large.begin(), large.end(), '!');  // the caller's again
  const Ticket next = ours.sends(small);
  // Frames up to the next message; none is an end of the first.
  std::string stream;
  std::uint32_t frame = 1;
  bool done = false;
  for (bool found = false; !found;) {
    done = done || ours.room->test(next);
    stream += ours.hears();
    while (stream.size() >= TcpFrame::size) {
      const TcpFrame read =
          decode({reinterpret_cast<const std::byte*>(stream.data()), stream.size()}, frame);
      if (stream.size() < TcpFrame::size + read.content()) break;
      const std::string content = stream.substr(TcpFrame::size, read.content());
      CHECK(!contains(content, "!"));
      CHECK(read.kind != TcpFrame::Kind::end);
      found = found || (read.kind == TcpFrame::Kind::whole && content == small);
      stream.erase(0, TcpFrame::size + read.content());
      ++frame;
    }
  }
  CHECK(done);
}

TEST_CASE("what comes for a group that is gone is dropped, and takes no room") {
  Ours ours;
  ours.room->forget(ours.group.id);
  const MailGroup another{.id = 6, .rank = 0, .members = {0, 1}};
  std::string data(1, 0);
  const Message message{Direction::recv, 1, reinterpret_cast<std::byte*>(data.data()), 1};
  const Ticket ticket = ours.room->post(another, channel, {&message, 1});
  const std::string body(TcpFrame::largest_whole, 'x');
  for (std::uint64_t number = 0; number < 40; ++number) {  // more than the window
    ours.says(frame_of(TcpFrame::Kind::whole, body.size(), number));
    for (std::size_t at = 0; at < body.size(); at += 8192) {
      ours.says(body.data(), 8192);
      REQUIRE_FALSE(ours.room->test(ticket));
    }
  }
}

TEST_CASE("a receive that is given up takes nothing of what still comes") {
  Ours ours;
  std::string data(1000, 0), small(2, 0);
  const Ticket ticket = ours.receives(data);
  ours.says(frame_of(TcpFrame::Kind::offer, 1000, 0));
  ours.says(frame_of(TcpFrame::Kind::part, 600, 0), std::string(100, 'x'));
  CHECK_FALSE(ours.room->test(ticket));
  ours.room->cancel(ticket);
  const Ticket next = ours.receives(small);
  std::string rest(500, 'y');
  ours.says(rest.data(), rest.size());
  ours.says(frame_of(TcpFrame::Kind::part, 400, 0), std::string(400, 'z'));
  ours.says(frame_of(TcpFrame::Kind::end, 0, 0));
  ours.says(frame_of(TcpFrame::Kind::whole, 2, 1), "ok");
  CHECK(ours.room->test(next));
  CHECK(small == "ok");
  CHECK(data == std::string(100, 'x') + std::string(900, 0));
}

TEST_CASE("bytes that come before their message is accepted go nowhere") {
  Ours ours;
  std::string data(1000, 0), other(1, 0);
  const MailGroup another{.id = 6, .rank = 0, .members = {0, 1}};
  const auto post = [&](const MailGroup& group, std::string& to) {
    const Message message{Direction::recv, 1, reinterpret_cast<std::byte*>(to.data()), 1};
    return ours.room->post(group, channel, {&message, 1});
  };
  const Ticket looks = post(another, other);
  ours.says(frame_of(TcpFrame::Kind::offer, 1, 0));
  ours.says(frame_of(TcpFrame::Kind::part, 600, 0), std::string(100, 'x'));
  CHECK_FALSE(ours.room->test(looks));
  const Ticket ticket = post(ours.group, data);  // of its first byte
  const std::string rest(500, 'y');
  ours.says(rest.data(), rest.size());
  CHECK_FALSE(ours.room->test(ticket));
  CHECK(data == std::string(1000, 0));
  ours.says(frame_of(TcpFrame::Kind::part, 1, 0), "z");
  ours.says(frame_of(TcpFrame::Kind::end, 0, 0));
  CHECK(ours.room->test(ticket));
  CHECK(data == "z" + std::string(999, 0));
}

TEST_CASE("words for a rank that takes none of them in do not pile up") {
  Ours ours;
  const std::shared_ptr<Mailroom> room(std::move(ours.room));
  FarBoard far(std::make_unique<MailTransport>(room, "tcp"));
  const auto board = Board::in_memory(2);
  std::size_t heard = 0;
  Row row{.text = "barrier"};
  for (row.sequence = 0; row.sequence < 1000; ++row.sequence) {
    far.tell({1}, row, board->flight(0));
    if (row.sequence % 16 == 0) heard += ours.hears().size();
  }
  heard += ours.hears().size();
  CHECK(heard > TcpLine::window / 2);
  CHECK(heard <= TcpLine::window + TcpFrame::size);  // and one that is offered
}

TEST_CASE("words for one rank wait for no other that takes none of them in") {
  const Ends full = in_memory(), read = in_memory();
  std::vector<std::unique_ptr<Line>> lines;
  lines.push_back(ring_to_itself(0));
  lines.push_back(std::make_unique<TcpLine>(1, "rank 1 (there)", full.ours));
  lines.push_back(std::make_unique<TcpLine>(2, "rank 2 (there)", read.ours));
  {
    FarBoard far(
        std::make_unique<MailTransport>(std::make_shared<Mailroom>(0, std::move(lines)), "tcp"));
    const auto board = Board::in_memory(3);
    constexpr std::size_t words = 150;  // more than a connection has room for
    std::size_t first = 0, heard = 0;
    std::vector<char> room(65536);
    Row row{.text = "barrier"};
    for (row.sequence = 0; row.sequence < words; ++row.sequence) {
      far.tell({1, 2}, row, board->flight(0));
      const auto got = recv(read.other, room.data(), room.size(), MSG_DONTWAIT);
      REQUIRE(got > 0);
      heard += static_cast<std::size_t>(got);
      if (first == 0) first = heard;
    }
    CHECK(heard == words * first);
  }
  close(full.other);
  close(read.other);
}

TEST_CASE("what was sent arrives, though its sender leaves and has not read all that came") {
  std::string data(60'000, 'x');
  Ours ours(over_tcp());
  for (int i = 0; i < 3; ++i) {
    const Ticket ticket = ours.sends(data);
    while (!ours.room->test(ticket)) std::this_thread::yield();  // the system has taken it
  }
  ours.says(frame_of(TcpFrame::Kind::offer, 10));
  ours.waits();
  ours.room.reset();
  std::string heard;
  ssize_t got = 1;
  while (got > 0) {
    pollfd polled{ours.other(), POLLIN, 0};
    REQUIRE(poll(&polled, 1, 10'000) == 1);
    char bytes[65536];
    got = recv(ours.other(), bytes, sizeof bytes, 0);
    if (got > 0) heard.append(bytes, static_cast<std::size_t>(got));
  }
  CHECK(got == 0);
  CHECK(heard.size() == 3 * (TcpFrame::size + data.size()) + TcpFrame::size);  // and bye
}

TEST_CASE(
    "a host that has vanished is found, whatever was on its way; one that reads nothing stays") {
  for (const bool full : {false, true}) {
    std::string data(1, 0), sent(full ? 60'000 : 100, 'x');
    Ours ours(over_tcp(), milliseconds(40));
    const Ticket ticket = ours.receives(data);
    if (full) {
      for (int i = 0; i < 16; ++i) ours.sends(sent);
      // The system asks whether there is room, after longer and longer times.
      for (const auto until = std::chrono::steady_clock::now() + milliseconds(3000);
           std::chrono::steady_clock::now() < until;) {
        REQUIRE_FALSE(ours.room->test(ticket));
        std::this_thread::sleep_for(milliseconds(1));
      }
    }
    vanish(ours.other());
    if (!full) ours.sends(sent);
    std::string error = "nothing";
    for (const auto until = std::chrono::steady_clock::now() + milliseconds(30'000);
         error == "nothing" && std::chrono::steady_clock::now() < until;) {
      error = error_of([&] { ours.room->test(ticket); });
      std::this_thread::sleep_for(milliseconds(1));
    }
    check_has(error, "rank 1 (there): it has answered nothing for 1.");
  }
}

TEST_CASE("a child's children keep what they open where it had a connection") {
  const OwnSocket own(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (fcntl(own.get(), F_GETFD) >= 0 || dup2(STDERR_FILENO, own.get()) != own.get()) _exit(1);
    const pid_t grandchild = fork();
    if (grandchild == 0) _exit(fcntl(own.get(), F_GETFD) >= 0 ? 0 : 1);
    _exit(grandchild > 0 && ended_well(grandchild) ? 0 : 1);
  }
  CHECK(ended_well(child));
}

TEST_CASE("a rank's children by fork have none of its connections") {
  Ours ours;
  std::string data(1, 0);
  const Ticket ticket = ours.receives(data);
  int pipes[2];
  REQUIRE(pipe(pipes) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    char byte = 0;
    close(pipes[1]);
    _exit(read(pipes[0], &byte, 1) == 0 ? 0 : 1);  // lives until its parent has closed
  }
  ours.room->cancel(ticket);
  ours.room.reset();
  std::string heard = ours.hears();
  CHECK(heard.size() == TcpFrame::size);  // bye
  CHECK(ours.hears().empty());
  pollfd polled{ours.other(), POLLIN, 0};
  CHECK(poll(&polled, 1, 0) == 1);
  CHECK((polled.revents & POLLHUP) != 0);  // nobody else has that end
  close(pipes[0]);
  close(pipes[1]);
  CHECK(ended_well(child));
}
