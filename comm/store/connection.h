// SPDX-License-Identifier: Apache-2.0
// Connection: one TCP connection of a store, and the frames that travel on it. Nothing here waits
// but wait_for(). A frame is 32 bytes of head (what it is, who sends it, how long it is) and a
// text; what does not begin like one is a stranger's, and an Error at its first bytes. A length is
// believed only as its bytes come, so a lie costs no memory. Thread safety: one thread at a time.
#pragma once

#include <netdb.h>
#include <poll.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace peal::comm {

// A file descriptor of the system, closed at the end.
class Socket {
 public:
  explicit Socket(int descriptor = -1) : descriptor_(descriptor) {}
  ~Socket();
  Socket(Socket&& other) noexcept : descriptor_(other.descriptor_) { other.descriptor_ = -1; }
  Socket& operator=(Socket&& other) noexcept;
  int get() const { return descriptor_; }
  int release() { return std::exchange(descriptor_, -1); }  // the caller's from now on
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

struct Frame {
  enum Kind : std::uint32_t {
    hello = 1,  // who one is (tcp_listener.h)
    challenge,  // to show that one knows the secret
    proof,
    welcome,
    refusal,  // why one is turned away
    set,      // requests, with lists of texts
    get,
    add,
    remove,
    answer,
    failure,
    bye,
  };
  Kind kind = hello;
  std::uint32_t rank = 0, world = 0;
  std::uint32_t number = 0;  // of the request
  std::string body{};
};

class Connection {
 public:
  // `most`: bytes that a frame's text may have.
  Connection(Socket socket, std::string peer, std::size_t most)
      : socket_(std::move(socket)), peer_(std::move(peer)), most_(most) {}

  // What to poll for: that something can be moved.
  pollfd polled() const {
    return {socket_.get(), static_cast<short>(POLLIN | (sends() ? POLLOUT : 0)), 0};
  }
  const std::string& peer() const { return peer_; }  // an address, or a rank once it is known
  // It is known now, and may say more.
  void admit(std::string peer, std::size_t most) {
    peer_ = std::move(peer);
    most_ = most;
  }
  void send(const Frame& frame);
  // Moves what can be moved now. False when the peer has closed or is gone; what it sent before is
  // there still.
  bool pump();
  bool sends() const { return sent_ < out_.size(); }  // something is left to send
  // The next frame that is there whole. Error for what is none.
  std::optional<Frame> take();

 private:
  Socket socket_;
  std::string peer_;
  std::size_t most_;
  std::string in_, out_;
  std::size_t sent_ = 0;
};

// Until something can be moved on it, or 20 ms are over.
void wait_for(const Connection& connection);

// What is sent goes at once, and a host that vanishes is found out within half a minute.
void keep_alive(const Socket& socket);

// A list of texts as one, and back. Error for what is none.
std::string join(const std::vector<std::string>& texts);
std::vector<std::string> parted(const std::string& joined);

// Addresses that a name has; empty, with `problem`, where it has none (now).
class Addresses {
 public:
  Addresses(const std::string& host, int port, bool listens, std::string& problem);
  ~Addresses();
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;
  const addrinfo* first() const { return first_; }

 private:
  addrinfo* first_ = nullptr;
};

}  // namespace peal::comm
