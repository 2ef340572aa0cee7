// SPDX-License-Identifier: Apache-2.0
// libFuzzer on what comes over a connection between nodes. Whatever the bytes: what a rank has
// posted is done, waits on, or is a peal::Error; what is done has its message's bytes, and memory
// beyond is untouched. The first bytes are read as a hello, too. The last byte is not sent: it says
// where the rest is cut in two (its upper bits, in 128ths), and whether a receive is posted in
// between (its lowest).
#include <peal/autograd/core/error.h>
#include <peal/comm/transport/mail/mailroom.h>
#include <peal/comm/transport/shm/ring_line.h>
#include <peal/comm/transport/tcp/hello.h>
#include <peal/comm/transport/tcp/tcp_line.h>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace peal::comm;

void require(bool condition) {
  if (!condition) std::abort();
}

void hear(const std::uint8_t* data, std::size_t size) {
  const std::string key = "a key";
  std::string said(reinterpret_cast<const char*>(data), std::min(size, TcpHello::size));
  try {
    const TcpHello hello = hello_in(said, key);
    require(encode(hello, key) == said);
  } catch (const peal::Error&) {
  }
}

// Posted there; what a test says.
class Rank {
 public:
  Rank(int connection, bool one_late) {
    std::vector<std::unique_ptr<Line>> lines;
    lines.push_back(ring_to_itself(0));
    auto line = std::make_unique<TcpLine>(1, "rank 1", connection);
    const auto watch = std::make_shared<TcpWatch>();
    watch->add(*line);
    lines.push_back(std::move(line));
    room_ = std::make_unique<Mailroom>(0, std::move(lines), [watch] { watch->ask(); });
    post(Direction::recv, data_[0]);
    if (!one_late) post_second();
    post(Direction::send, data_[2]);
  }
  void post_second() { post(Direction::recv, data_[1]); }
  void test() {
    for (Ticket& ticket : tickets_) {
      try {
        if (ticket != 0 && room_->test(ticket)) ticket = 0;
      } catch (const peal::Error&) {
      }
    }
  }

 private:
  void post(Direction direction, std::vector<std::byte>& data) {
    const Message message{
        .direction = direction, .peer = 1, .data = data.data(), .bytes = data.size()};
    tickets_.push_back(room_->post(group_, {.sequence = 7, .signature = 9}, {&message, 1}));
  }

  const MailGroup group_{.id = 5, .rank = 0, .members = {0, 1}};
  std::vector<std::byte> data_[3] = {std::vector<std::byte>(5), std::vector<std::byte>(1000),
                                     std::vector<std::byte>(100'000)};
  std::unique_ptr<Mailroom> room_;
  std::vector<Ticket> tickets_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t how = data[--size];
  bool one_late = how % 2 != 0;
  hear(data, size);
  int ends[2];
  require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  {
    Rank rank(ends[0], one_late);
    const std::size_t first = size * (how / 2) / 128;
    for (const auto& [at, bytes] :
         {std::pair(std::size_t{0}, first), std::pair(first, size - first)}) {
      if (send(ends[1], data + at, bytes, MSG_NOSIGNAL) < 0) break;  // too much for a socket
      rank.test();
      rank.test();
      if (std::exchange(one_late, false)) rank.post_second();
    }
    close(ends[1]);
    rank.test();
    rank.test();
  }
  return 0;
}
