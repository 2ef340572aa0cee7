// SPDX-License-Identifier: Apache-2.0
// A line over TCP whose other end is the test's, which says on it what it likes.
#pragma once

#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include "mail_ranks.h"

namespace peal::testing {

using namespace peal::comm;

inline constexpr Channel channel{.sequence = 7, .signature = 9};

// Of a connection.
struct Ends {
  int ours, other;
};

inline Ends in_memory() {
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  return {ends[0], ends[1]};
}

// Ours has room for much, the other one for little, so that most of what is sent waits in ours.
inline Ends over_tcp() {
  const int much = 1 << 20, little = 4096;
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const place = reinterpret_cast<sockaddr*>(&address);
  REQUIRE(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &little, sizeof little) == 0);  // inherited
  REQUIRE(bind(listener, place, size) == 0);
  REQUIRE(listen(listener, 1) == 0);
  REQUIRE(getsockname(listener, place, &size) == 0);
  const int ours = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(setsockopt(ours, SOL_SOCKET, SO_SNDBUF, &much, sizeof much) == 0);
  REQUIRE(connect(ours, place, size) == 0);
  REQUIRE(fcntl(ours, F_SETFL, O_NONBLOCK) == 0);
  const int other = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  REQUIRE(other >= 0);
  close(listener);
  return {ours, other};
}

// As if its host had: nothing that is sent to that socket comes.
inline void vanish(int socket) {
  sock_filter nothing{.code = BPF_RET | BPF_K, .jt = 0, .jf = 0, .k = 0};
  const sock_fprog program{.len = 1, .filter = &nothing};
  REQUIRE(setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0);
}

// Rank 0 of two, whose line to rank 1 is a connection that the test has the other end of.
class Ours {
 public:
  explicit Ours(Ends ends = in_memory(), milliseconds between_checks = milliseconds(1000))
      : ours_(ends.ours), other_(ends.other) {
    std::vector<std::unique_ptr<Line>> lines;
    lines.push_back(ring_to_itself(0));
    auto made = std::make_unique<TcpLine>(1, "rank 1 (there)", ends.ours, between_checks);
    line = made.get();
    const auto watch = std::make_shared<TcpWatch>();
    watch->add(*line);
    lines.push_back(std::move(made));
    room = std::make_unique<Mailroom>(0, std::move(lines), [watch] { watch->ask(); });
  }
  ~Ours() {
    if (other_ >= 0) close(other_);
  }
  Ours(const Ours&) = delete;
  Ours& operator=(const Ours&) = delete;

  void says(const void* data, std::size_t bytes) const {
    REQUIRE(::send(other_, data, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes));
  }
  void says(const TcpFrame& frame, std::string_view content = {}) {
    TcpFrame next = frame;
    next.frame = frames_++;
    const auto bytes = encode(next);
    says(bytes.data(), bytes.size());
    if (!content.empty()) says(content.data(), content.size());
  }
  // Until what was said has come, and is unread.
  void waits() const {
    pollfd polled{ours_, POLLIN, 0};
    REQUIRE(poll(&polled, 1, 10'000) == 1);
  }
  int other() const { return other_; }
  void hang_up() { close(std::exchange(other_, -1)); }
  // What was said to it so far.
  std::string hears() const {
    std::string heard(std::size_t{1} << 22, 0);
    const auto got = recv(other_, heard.data(), heard.size(), MSG_DONTWAIT);
    heard.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return heard;
  }
  TcpFrame hears_frame(std::uint32_t number) const {
    const std::string heard = hears();
    REQUIRE(heard.size() >= TcpFrame::size);
    return decode({reinterpret_cast<const std::byte*>(heard.data()), heard.size()}, number);
  }
  Ticket receives(std::string& data) const { return posts(Direction::recv, data); }
  Ticket sends(std::string& data) const { return posts(Direction::send, data); }

  std::unique_ptr<Mailroom> room;
  TcpLine* line;  // of the room
  MailGroup group{.id = 5, .rank = 0, .members = {0, 1}};

 private:
  Ticket posts(Direction direction, std::string& data) const {
    const Message message{.direction = direction,
                          .peer = 1,
                          .data = reinterpret_cast<std::byte*>(data.data()),
                          .bytes = data.size()};
    return room->post(group, channel, {&message, 1});
  }
  int ours_, other_;
  std::uint32_t frames_ = 0;
};

inline TcpFrame frame_of(TcpFrame::Kind kind, std::uint64_t bytes, std::uint64_t number = 0,
                         std::int32_t from = 1) {
  return {
      .kind = kind,
      .parcel = {.group = 5, .channel = channel, .number = number, .bytes = bytes, .from = from}};
}

}  // namespace peal::testing
