// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/store/connection.h>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

namespace peal::comm {
namespace {

constexpr std::string_view magic = "PEALsto3";  // the last byte is the version
constexpr std::size_t head_bytes = 32;

void append(std::string& to, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) to += static_cast<char>((value >> (8 * i)) & 0xff);
}

std::uint64_t number_at(const std::string& from, std::size_t at, int bytes) {
  std::uint64_t value = 0;
  for (int i = bytes - 1; i >= 0; --i) {
    value = value << 8 | static_cast<unsigned char>(from[at + static_cast<std::size_t>(i)]);
  }
  return value;
}

}  // namespace

Socket::~Socket() {
  if (descriptor_ >= 0) close(descriptor_);
}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

void Connection::send(const Frame& frame) {
  out_ += magic;
  append(out_, frame.kind, 4);
  append(out_, frame.rank, 4);
  append(out_, frame.world, 4);
  append(out_, frame.number, 4);
  append(out_, frame.body.size(), 8);
  out_ += frame.body;
}

bool Connection::pump() {
  while (sends()) {
    const auto moved = ::send(socket_.get(), out_.data() + sent_, out_.size() - sent_,
                              MSG_NOSIGNAL | MSG_DONTWAIT);
    if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) break;  // it is gone; what it said last may still be read
    sent_ += static_cast<std::size_t>(moved);
  }
  if (!sends()) {
    out_.clear();
    sent_ = 0;
  }
  for (std::size_t room = head_bytes + most_; in_.size() < room;) {
    char buffer[65536];
    const auto moved = ::recv(socket_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) return false;
    in_.append(buffer, static_cast<std::size_t>(moved));
  }
  return true;
}

std::optional<Frame> Connection::take() {
  const std::size_t seen = std::min(in_.size(), magic.size());
  PEAL_CHECK(in_.compare(0, seen, magic, 0, seen) == 0, "[store] ", peer_,
             " does not speak as a store of this version of peal does");
  if (in_.size() < head_bytes) return std::nullopt;
  const std::uint64_t kind = number_at(in_, 8, 4), size = number_at(in_, 24, 8);
  PEAL_CHECK(kind >= Frame::hello && kind <= Frame::bye && size <= most_, "[store] ", peer_,
             " sent a frame of kind ", kind, " with ", size, " bytes; expected at most ", most_);
  if (in_.size() < head_bytes + size) return std::nullopt;
  Frame frame{.kind = static_cast<Frame::Kind>(kind),
              .rank = static_cast<std::uint32_t>(number_at(in_, 12, 4)),
              .world = static_cast<std::uint32_t>(number_at(in_, 16, 4)),
              .number = static_cast<std::uint32_t>(number_at(in_, 20, 4)),
              .body = in_.substr(head_bytes, size)};
  in_.erase(0, head_bytes + size);
  return frame;
}

void wait_for(const Connection& connection) {
  pollfd polled = connection.polled();
  poll(&polled, 1, 20);
}

void keep_alive(const Socket& socket) {
  const auto set = [&](int level, int name, int value) {
    setsockopt(socket.get(), level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 10);          // seconds of silence, before
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);          // questions so far apart,
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);            // so many
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 30'000);  // milliseconds for what was sent
}

// Every text, its length before it.
std::string join(const std::vector<std::string>& texts) {
  std::string joined;
  for (const std::string& text : texts) joined += concat(text.size(), ":", text);
  return joined;
}

std::vector<std::string> parted(const std::string& joined) {
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < joined.size();) {
    const std::size_t colon = joined.find(':', at);
    PEAL_CHECK(colon != std::string::npos, "[store] what came is no list of texts");
    std::size_t size = 0;
    const char* const end = joined.data() + colon;
    const auto read = std::from_chars(joined.data() + at, end, size);
    PEAL_CHECK(read.ec == std::errc{} && read.ptr == end && size <= joined.size() - colon - 1,
               "[store] what came is no list of texts");
    texts.push_back(joined.substr(colon + 1, size));
    at = colon + 1 + size;
  }
  return texts;
}

Addresses::Addresses(const std::string& host, int port, bool listens, std::string& problem) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (listens ? AI_PASSIVE : 0);
  const int code = getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(),
                               &hints, &first_);
  if (code != 0) {
    problem = concat("the name ", host, " is not known: ", gai_strerror(code),
                     "; name a host or an address that is known here (MASTER_ADDR)");
    first_ = nullptr;
  }
}

Addresses::~Addresses() {
  if (first_ != nullptr) freeaddrinfo(first_);
}

}  // namespace peal::comm
