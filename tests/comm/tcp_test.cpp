// SPDX-License-Identifier: Apache-2.0
// Lines over TCP: what breaks them, and who is told. mail_test.cpp has what all lines do.
#include <peal/autograd/core/error.h>

#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include "mail_ranks.h"

using namespace peal;
using namespace peal::comm;
using namespace peal::testing;

namespace {

constexpr Channel channel{.sequence = 7, .signature = 9};

using Clock = std::chrono::steady_clock;

// Of a connection.
struct Ends {
  int ours, other;
};

Ends in_memory() {
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  return {ends[0], ends[1]};
}

// Ours has room for much, the other one for little, so that most of what is sent waits in ours.
Ends over_tcp() {
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
void vanish(int socket) {
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

TcpFrame frame_of(TcpFrame::Kind kind, std::uint64_t bytes, std::uint64_t number = 0,
                  std::int32_t from = 1) {
  return {
      .kind = kind,
      .parcel = {.group = 5, .channel = channel, .number = number, .bytes = bytes, .from = from}};
}

}  // namespace

TEST_CASE("frames: what is encoded is decoded, and what is none is an error that says what it is") {
  const TcpFrame frame{.kind = TcpFrame::Kind::whole,
                       .parcel = {.group = ~std::uint64_t{0} - 1,
                                  .channel = {1, ~std::uint64_t{0}},
                                  .number = 1234567890123,
                                  .bytes = 65536,
                                  .from = 2147483647},
                       .frame = 3000000000,
                       .met = 99};
  const auto bytes = encode(frame);
  const TcpFrame again = decode(bytes, 3000000000);
  CHECK(again.parcel.group == frame.parcel.group);
  CHECK(again.parcel.channel == frame.parcel.channel);
  CHECK(again.parcel.number == frame.parcel.number);
  CHECK(again.parcel.bytes == frame.parcel.bytes);
  CHECK(again.parcel.from == frame.parcel.from);
  CHECK(again.met == frame.met);
  CHECK(encode(again) == bytes);
  const auto refuses = [&](std::size_t at, int value, const char* why) {
    auto other = bytes;
    other[at] = static_cast<std::byte>(value);
    check_has(error_of([&] { (void)decode(other, 3000000000); }), why);
  };
  refuses(0, 'X', "no frame of peal's");
  refuses(4, 0, "a frame of kind 0");
  refuses(4, 9, "a frame of kind 9");
  refuses(5, 1, "a frame of kind 257");
  refuses(40, 1, "65537 bytes, expected at most 65536");
  refuses(47, 255, "bytes, expected at most 65536");
  refuses(51, 128, "a frame of rank");
  refuses(52, 1, "expected 3000000000");
  refuses(4, static_cast<int>(TcpFrame::Kind::accept), "65536 bytes, expected at most 0");
}

TEST_CASE("messages arrive in pieces of any size") {
  Ours ours;
  std::string small(5, 0), large(1000, 0);
  const Ticket first = ours.receives(small), second = ours.receives(large);
  std::string stream;
  auto add = [&, frame = std::uint32_t{0}](TcpFrame next, std::string_view content) mutable {
    next.frame = frame++;
    const auto bytes = encode(next);
    stream.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    stream += content;
  };
  const std::string body(1000, 'x');
  add(frame_of(TcpFrame::Kind::whole, 5, 0), "hello");
  add(frame_of(TcpFrame::Kind::offer, 1000, 1), "");
  add(frame_of(TcpFrame::Kind::part, 600, 1), std::string_view(body).substr(0, 600));
  add(frame_of(TcpFrame::Kind::part, 400, 1), std::string_view(body).substr(600));
  add(frame_of(TcpFrame::Kind::end, 0, 1), "");
  for (const char byte : stream) {
    CHECK_FALSE(ours.room->test(second));
    ours.says(&byte, 1);
  }
  CHECK(ours.room->test(first));
  CHECK(ours.room->test(second));
  CHECK(small == "hello");
  CHECK(large == body);
}

TEST_CASE("frames that break the rules end the line, and name the rank") {
  using Kind = TcpFrame::Kind;
  const auto ends = [](const auto& says, const char* why) {
    Ours ours;
    std::string data(100, 0);
    const Ticket ticket = ours.receives(data);
    CHECK_FALSE(ours.room->test(ticket));
    says(ours);
    const std::string error = error_of([&] { ours.room->test(ticket); });
    check_has(error, "rank 1 (there): ");
    check_has(error, why);
    CHECK(data == std::string(100, 0));
  };
  ends(
      [](Ours& o) {
        o.says("GET / HTTP/1.1\r\nHost: example.org\r\nAccept: text/html, */*\r\n\r\n", 60);
        o.says("........", 8);
      },
      "no frame of peal's");
  ends([](Ours& o) { o.says(frame_of(Kind::accept, 0, 3)); }, "which it was not offered");
  ends([](Ours& o) { o.says(frame_of(Kind::part, 10, 3)); }, "which it never offered");
  ends(
      [](Ours& o) {
        o.says(frame_of(Kind::offer, 100, 0));
        o.says(frame_of(Kind::part, 101, 0), std::string(101, 'x'));
      },
      "101 bytes of message 0, expected 100");
  ends(
      [](Ours& o) {
        o.says(frame_of(Kind::offer, 100, 0));
        o.says(frame_of(Kind::end, 0, 0));
      },
      "after 0 of 100 bytes");
  ends(
      [](Ours& o) {
        o.says(frame_of(Kind::whole, 1, 4, 0), "x");
        o.says(frame_of(Kind::whole, 1, 4, 0), "x");
      },
      "it sent message 4, expected 5");
  ends(
      [](Ours& o) {
        TcpFrame frame = frame_of(Kind::met, 0);
        frame.met = 1;
        o.says(frame);
      },
      "received 1 bytes of 0");
  // A sender that does not keep to its window.
  ends(
      [](Ours& o) {
        const std::string body(TcpFrame::largest_whole, 'x');
        TcpFrame frame = frame_of(Kind::whole, body.size());
        frame.parcel.channel.sequence = 1;
        std::string unused(1, 0);
        const Ticket other = o.receives(unused);
        for (std::uint64_t number = 0; number < 17; ++number) {
          frame.parcel.number = number;
          o.says(frame);
          for (std::size_t at = 0; at < body.size();) {
            at += std::min<std::size_t>(8192, body.size() - at);
            o.says(body.data(), 8192);
            error_of([&] { o.room->test(other); });
          }
        }
      },
      "that nobody has received yet");
}

TEST_CASE("a message under another's name, and one of another size, are errors of their receive") {
  Ours ours;
  std::string data(4, 0);
  const Ticket from_itself = ours.room->post(
      ours.group, channel,
      std::vector<Message>{{Direction::recv, 0, reinterpret_cast<std::byte*>(data.data()), 4}});
  ours.says(frame_of(TcpFrame::Kind::whole, 4, 0, 0), "fake");
  check_has(error_of([&] { ours.room->test(from_itself); }),
            "rank 1 of the job sent a message as if it were rank 0");
  CHECK(data == std::string(4, 0));
  const Ticket other = ours.receives(data);
  ours.says(frame_of(TcpFrame::Kind::whole, 5, 1), "wrong");
  check_has(error_of([&] { ours.room->test(other); }), "expected 4 bytes from rank 1, got 5");
}

TEST_CASE(
    "a connection that ends without a word is a rank that is gone; one that says bye is not") {
  for (const bool in_the_middle : {false, true}) {
    Ours ours;
    std::string data(100, 0);
    const Ticket ticket = ours.receives(data);
    if (in_the_middle) ours.says(frame_of(TcpFrame::Kind::whole, 100), "cut off");
    CHECK_FALSE(ours.room->test(ticket));
    ours.hang_up();
    const std::string error = error_of([&] { ours.room->test(ticket); });
    check_has(error, "rank 1 (there): it is gone");
    check_has(error, "closed the connection");
  }
  Ours ours;
  std::string data(5, 0), sent(5, 0);
  const Ticket ticket = ours.receives(data);
  ours.says(frame_of(TcpFrame::Kind::whole, 5), "hello");
  ours.says({.kind = TcpFrame::Kind::bye});
  ours.hang_up();
  CHECK(ours.room->test(ticket));
  CHECK(data == "hello");
  const Ticket in_vain = ours.receives(data);
  check_has(error_of([&] { ours.room->test(in_vain); }), "let go of its last group");
  const Ticket later = ours.sends(sent);
  check_has(error_of([&] { ours.room->test(later); }), "let go of its last group");
}

TEST_CASE("a receive from any rank ends where all who could send have left, and not before") {
  const Ends ends[] = {in_memory(), in_memory()};
  const auto watch = std::make_shared<TcpWatch>();
  std::vector<std::unique_ptr<Line>> lines;
  lines.push_back(ring_to_itself(0));
  for (const int peer : {1, 2}) {
    auto line = std::make_unique<TcpLine>(peer, concat("rank ", peer), ends[peer - 1].ours);
    watch->add(*line);
    lines.push_back(std::move(line));
  }
  Mailroom room(0, std::move(lines), [watch] { watch->ask(); });
  const MailGroup group{.id = 5, .rank = 0, .members = {0, 1, 2}};
  std::byte data{};
  const Message message{Direction::recv, any_source, &data, 1};
  const Ticket ticket = room.post(group, channel, {&message, 1});
  const auto bye = encode(TcpFrame{.kind = TcpFrame::Kind::bye});
  for (const int peer : {1, 2}) {
    CHECK_FALSE(room.test(ticket));
    REQUIRE(::send(ends[peer - 1].other, bye.data(), bye.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(bye.size()));
    close(ends[peer - 1].other);
  }
  check_has(error_of([&] { room.test(ticket); }),
            "rank 2: it has let go of its last group, as all others have");
}

TEST_CASE("a failure is told in the words of the rank that failed") {
  Ours ours;
  std::string data(100, 0);
  const Ticket ticket = ours.receives(data);
  const std::string why = "the disk is full";
  ours.says({.kind = TcpFrame::Kind::failure, .parcel = {.bytes = why.size()}}, why);
  check_has(error_of([&] { ours.room->test(ticket); }),
            "rank 1 (there) has failed: the disk is full");
  ours.room->tell("of our own");
  const std::string heard = ours.hears();
  CHECK(contains(heard, "of our own"));
}

TEST_CASE("a rank that ends in the middle of a large message says why, and sends no more of it") {
  Ours ours;
  std::string large(std::size_t{8} << 20, 'l');
  const Ticket ticket = ours.sends(large);
  CHECK(ours.hears_frame(0).kind == TcpFrame::Kind::offer);
  ours.says(frame_of(TcpFrame::Kind::accept, 0, 0));
  CHECK_FALSE(ours.room->test(ticket));  // the system has no room for more
  ours.room->tell("no more samples");
  std::string heard;
  for (bool all = false; !all;) {
    all = ours.line->leave(*ours.room);
    for (std::string more = ours.hears(); !more.empty(); more = ours.hears()) heard += more;
  }
  CHECK(contains(heard, "no more samples"));
  CHECK(heard.size() < large.size() / 2);
  ours.room->leave();
  CHECK_FALSE(ours.room->test(ticket));
  CHECK(ours.hears().empty());
}

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

TEST_CASE("whatever comes is a message or an error") {
  std::mt19937 random(1);
  for (int turn = 0; turn < 300; ++turn) {
    Ours ours;
    std::string data(64, 0), other(64, 0);
    const Ticket one = ours.receives(data), two = ours.sends(other);
    std::string noise;
    std::uint32_t frame = 0;
    for (int i = 0; i < 6; ++i) {
      TcpFrame next =
          frame_of(static_cast<TcpFrame::Kind>(1 + random() % 8), random() % 70, random() % 3);
      next.frame = frame++;
      auto bytes = encode(next);
      if (random() % 4 == 0) bytes[random() % bytes.size()] ^= std::byte{4};
      noise.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      noise.append(next.content(), 'n');
    }
    noise.resize(random() % noise.size());
    ours.says(noise.data(), noise.size());
    ours.hang_up();
    for (const Ticket ticket : {one, two}) {
      bool over = false;
      for (int i = 0; i < 100 && !over; ++i) {
        over = error_of([&] { over = ours.room->test(ticket); }) != "nothing" || over;
      }
      CHECK(over);
    }
  }
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
      for (const auto until = Clock::now() + milliseconds(3000); Clock::now() < until;) {
        REQUIRE_FALSE(ours.room->test(ticket));
        std::this_thread::sleep_for(milliseconds(1));
      }
    }
    vanish(ours.other());
    if (!full) ours.sends(sent);
    std::string error = "nothing";
    for (const auto until = Clock::now() + milliseconds(30'000);
         error == "nothing" && Clock::now() < until;) {
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
