// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/transport/mail/mailroom.h>
#include <peal/comm/transport/tcp/tcp_line.h>

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace peal::comm {
namespace {

constexpr std::size_t input = 2 * TcpFrame::largest_whole;  // more than the longest that is kept
constexpr std::uint64_t nobodys = ~std::uint64_t{0};        // no message has that number

}  // namespace

TcpLine::TcpLine(int peer, std::string who, int descriptor,
                 std::chrono::milliseconds between_checks)
    : peer_(peer),
      who_(std::move(who)),
      socket_(descriptor),
      between_checks_(between_checks),
      in_(std::make_unique_for_overwrite<std::byte[]>(input)) {}

void TcpLine::tell(const std::string& why) { failure_ = why.substr(0, TcpFrame::largest_text); }

// What is to be told goes if that takes no time; who does not hear it learns that this rank is
// gone.
bool TcpLine::leave(Mailroom& room) {
  if (left_ || socket_.inherited()) return true;
  writable_ = true;
  write(room);
  const bool all = waiting_.empty() && failure_.empty() && sent_ == out_.size();
  if (over_.empty() && (!all || sending_.left > 0)) {
    readable_ = true;
    take_in(room);  // the other one may wait for room, too
    return false;
  }
  left_ = true;
  if (over_.empty()) {
    append(TcpFrame::Kind::bye);
    writable_ = true;
    write(room);
  }
  shutdown(socket_.get(), SHUT_WR);
  return true;
}

// Where a connection is closed with something unread, or something comes later, the system resets
// it, and what it had taken to send is lost.
bool TcpLine::ended() {
  if (socket_.inherited()) return true;
  for (int turn = 0; turn < most_turns; ++turn) {
    const auto got = ::recv(socket_.get(), in_.get(), input, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }
  return false;
}

void TcpLine::end(Mailroom& room, std::string_view why) {
  if (!over_.empty()) return;
  over_ = concat(who_, ": ", why);
  room.give_up(over_);
}

void TcpLine::take_in(Mailroom& room) {
  for (int turn = 0; readable_ && over_.empty() && turn < most_turns; ++turn) {
    std::byte* const there = place();
    const std::size_t direct = there == nullptr ? 0 : arriving_.left;
    iovec pieces[] = {{there, direct}, {in_.get() + end_, input - end_}};
    msghdr message{};
    message.msg_iov = pieces + (direct == 0 ? 1 : 0);
    message.msg_iovlen = direct == 0 ? 1 : 2;
    const auto got = recvmsg(socket_.get(), &message, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      readable_ = false;
      if (problem_ != 0) end(room, std::strerror(problem_));
      return;
    }
    if (got <= 0) {
      return end(room,
                 concat("it is gone: its process has ended, or the network between has (",
                        got == 0 ? "it has closed the connection" : std::strerror(errno), ")"));
    }
    const std::size_t moved = std::min(static_cast<std::size_t>(got), direct);
    if (moved > 0) {
      accepted_.at(arriving_.number).done += moved;
      arriving_.left -= moved;
    }
    end_ += static_cast<std::size_t>(got) - moved;
    try {
      parse(room);
    } catch (const Error& error) {
      end(room, error.what());
    }
  }
}

// Where the bytes of the part that arrives belong; null: nowhere, or there is none.
std::byte* TcpLine::place() {
  if (arriving_.left == 0) return nullptr;
  const auto found = accepted_.find(arriving_.number);
  if (found == accepted_.end()) return nullptr;  // given up
  return found->second.message.data + found->second.done;
}

void TcpLine::parse(Mailroom& room) {
  while (over_.empty()) {
    if (arriving_.left > 0) {
      const std::size_t bytes = std::min(arriving_.left, end_ - begin_);
      if (std::byte* const there = place(); there != nullptr && bytes > 0) {
        std::memcpy(there, in_.get() + begin_, bytes);
        accepted_.at(arriving_.number).done += bytes;
      }
      arriving_.left -= bytes;
      begin_ += bytes;
      if (arriving_.left > 0) break;
    }
    const std::span<const std::byte> there(in_.get() + begin_, end_ - begin_);
    if (there.size() < TcpFrame::size) break;
    const TcpFrame frame = decode(there, frames_in_);
    const bool part = frame.kind == TcpFrame::Kind::part;
    if (!part && there.size() < TcpFrame::size + frame.content()) break;
    begin_ += TcpFrame::size;
    ++frames_in_;
    take(room, frame);
    if (!part) begin_ += frame.content();
  }
  std::copy(in_.get() + begin_, in_.get() + end_, in_.get());
  end_ -= std::exchange(begin_, 0);
}

void TcpLine::take(Mailroom& room, const TcpFrame& frame) {
  PEAL_CHECK(frame.met >= peers_met_ && frame.met <= sent_whole_, "it says that it has received ",
             frame.met, " bytes of ", sent_whole_, ", and before ", peers_met_);
  peers_met_ = frame.met;
  Parcel parcel = frame.parcel;
  const std::uint64_t number = parcel.number;
  const bool whole = frame.kind == TcpFrame::Kind::whole;
  switch (frame.kind) {
    case TcpFrame::Kind::whole:
    case TcpFrame::Kind::offer: {
      PEAL_CHECK(number >= next_number_ && number + 1 != 0, "it sent message ", number,
                 ", expected ", next_number_, " at least");
      next_number_ = number + 1;
      if (whole) came_whole_ += charge(frame.content());
      PEAL_CHECK(came_whole_ - met_ <= window, "it sent ", came_whole_ - met_,
                 " bytes that nobody has received yet, expected at most ", window);
      parcel.kind = whole ? Parcel::Kind::whole : Parcel::Kind::offer;
      std::byte* const there = room.arrive(peer_, parcel);
      if (whole && there != nullptr) std::memcpy(there, in_.get() + begin_, frame.content());
      return;
    }
    case TcpFrame::Kind::accept:
      PEAL_CHECK(offered_.erase(number) == 1, "it accepted message ", number,
                 ", which it was not offered");
      waiting_.push_back({Outgoing::What::parts, number});
      return;
    case TcpFrame::Kind::part:
      return take_part(frame);
    case TcpFrame::Kind::end: {
      const auto found = accepted_.find(number);
      if (found == accepted_.end()) return;  // given up
      const Receive receive = found->second;
      PEAL_CHECK(receive.done == receive.message.bytes, "it ended message ", number, " after ",
                 receive.done, " of ", receive.message.bytes, " bytes");
      accepted_.erase(found);
      room.finish(receive.ticket);
      return;
    }
    case TcpFrame::Kind::met:
      return;
    case TcpFrame::Kind::failure:
      return room.give_up(concat(
          who_, " has failed: ",
          std::string_view(reinterpret_cast<const char*>(in_.get() + begin_), frame.content())));
    case TcpFrame::Kind::bye:
      over_ = concat(who_, ": it has let go of its last group");
      return room.line_is_over();
  }
}

// A part of what is not accepted was given up, or never asked for: it stays nobody's to its last
// byte, for a receive that is posted meanwhile, and accepts the message, may be smaller.
void TcpLine::take_part(const TcpFrame& frame) {
  const std::uint64_t number = frame.parcel.number;
  PEAL_CHECK(number < next_number_, "it sent a part of message ", number,
             ", which it never offered");
  const auto found = accepted_.find(number);
  if (found != accepted_.end()) {
    const Receive& receive = found->second;
    PEAL_CHECK(frame.content() <= receive.message.bytes - receive.done, "it sent ",
               receive.done + frame.content(), " bytes of message ", number, ", expected ",
               receive.message.bytes);
  }
  arriving_ = {found != accepted_.end() ? number : nobodys, frame.content()};
}

TcpWatch::TcpWatch() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  PEAL_CHECK(epoll_.get() >= 0, "[tcp] the system gives no epoll: ", std::strerror(errno));
}

// Edge-triggered: a line remembers what it was told until it finds that it is so no more.
void TcpWatch::add(TcpLine& line) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.ptr = &line;
  PEAL_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, line.socket_.get(), &event) == 0,
             "[tcp] the connection to ", line.who_, " cannot be watched: ", std::strerror(errno));
}

void TcpWatch::ask() {
  epoll_event events[64];
  const int count = epoll_wait(epoll_.get(), events, 64, 0);
  for (int i = 0; i < count; ++i) {
    auto& line = *static_cast<TcpLine*>(events[i].data.ptr);
    line.readable_ = line.readable_ || (events[i].events & ~std::uint32_t{EPOLLOUT}) != 0;
    line.writable_ = line.writable_ || (events[i].events & EPOLLOUT) != 0;
  }
}

}  // namespace peal::comm
