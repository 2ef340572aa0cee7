// SPDX-License-Identifier: Apache-2.0
// Lines over TCP: what breaks them, and who is told. mail_test.cpp has what all lines do.
#include <peal/autograd/core/error.h>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include "tcp_ends.h"

using namespace peal;
using namespace peal::comm;
using namespace peal::testing;

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
