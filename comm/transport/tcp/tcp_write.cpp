// SPDX-License-Identifier: Apache-2.0
// What a line over TCP sends.
#include <peal/autograd/core/error.h>
#include <peal/comm/transport/mail/mailroom.h>
#include <peal/comm/transport/tcp/tcp_line.h>

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace peal::comm {
namespace {

constexpr std::size_t most_queued = std::size_t{256} << 10;  // in out_, before it is written

}  // namespace

void TcpLine::append(TcpFrame::Kind kind, const Parcel& parcel, const void* content) {
  const TcpFrame frame{.kind = kind, .parcel = parcel, .frame = frames_out_++, .met = met_};
  told_met_ = met_;
  const auto head = encode(frame);
  out_.insert(out_.end(), head.begin(), head.end());
  queued_ += head.size();
  if (content == nullptr) return;
  const auto* const bytes = static_cast<const std::byte*>(content);
  out_.insert(out_.end(), bytes, bytes + frame.content());
  queued_ += frame.content();
}

// What can follow what is there; nothing while a part is under way, whose bytes come next. The word
// that this rank has failed comes after what was posted before it, but for parts of messages, which
// nobody needs any more.
void TcpLine::fill() {
  if (!failure_.empty()) {
    std::erase_if(waiting_, [](const auto& each) { return each.what == Outgoing::What::parts; });
  }
  while (sending_.left == 0 && !waiting_.empty() && out_.size() < most_queued) {
    const auto [what, number] = waiting_.front();
    waiting_.pop_front();
    switch (what) {
      case Outgoing::What::message:
        begin(number);
        break;
      case Outgoing::What::parts:
        begin_part(number);
        break;
      case Outgoing::What::answer:
        append(TcpFrame::Kind::accept, {.number = number});
    }
  }
  if (sending_.left == 0 && !failure_.empty() && waiting_.empty()) {
    append(TcpFrame::Kind::failure, {.bytes = failure_.size()}, failure_.data());
    failure_.clear();
  }
  if (sending_.left == 0 && met_ - told_met_ >= window / 4) append(TcpFrame::Kind::met);
}

void TcpLine::begin(std::uint64_t number) {
  const auto found = sends_.find(number);
  if (found == sends_.end()) return;  // given up
  const Send& send = found->second;
  const std::size_t bytes = send.message.bytes;
  const bool whole =
      bytes <= TcpFrame::largest_whole && sent_whole_ - peers_met_ + charge(bytes) <= window;
  if (!whole) {
    append(TcpFrame::Kind::offer, parcel_of(send, number, Parcel::Kind::offer));
    offered_.insert(number);
    return;
  }
  append(TcpFrame::Kind::whole, parcel_of(send, number, Parcel::Kind::whole), send.message.data);
  sent_whole_ += charge(bytes);
  marks_.push_back({queued_, number});
}

void TcpLine::begin_part(std::uint64_t number) {
  const auto found = sends_.find(number);
  if (found == sends_.end()) return;  // given up
  const Send& send = found->second;
  const std::size_t bytes = std::min(TcpFrame::largest_part, send.message.bytes - send.done);
  if (bytes == 0) {
    append(TcpFrame::Kind::end, {.number = number});
    marks_.push_back({queued_, number});
    return;
  }
  append(TcpFrame::Kind::part, {.number = number, .bytes = bytes});
  queued_ += bytes;
  sending_ = {number, bytes};
}

void TcpLine::write(Mailroom& room) {
  for (int turn = 0; turn < most_turns && over_.empty() && writable_; ++turn) {
    fill();
    if (sent_ == out_.size() && sending_.left == 0) break;
    if (!move(room)) break;
  }
  if (may_lack_answers_ && over_.empty()) check_answers(room);
}

// False where the system takes no more now.
bool TcpLine::move(Mailroom& room) {
  static constexpr std::byte nothing[std::size_t{16} << 10] = {};
  iovec pieces[2];
  std::size_t count = 0;
  if (sent_ < out_.size()) pieces[count++] = {out_.data() + sent_, out_.size() - sent_};
  if (sending_.left > 0) {
    const auto found = sends_.find(sending_.number);
    const std::byte* data = nothing;  // for one that was given up
    std::size_t bytes = std::min(sending_.left, sizeof nothing);
    if (found != sends_.end()) {
      data = found->second.message.data + found->second.done;
      bytes = sending_.left;
    }
    pieces[count++] = {const_cast<std::byte*>(data), bytes};
  }
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = count;
  const auto moved = sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (moved < 0 && errno == EINTR) return true;
  if (moved < 0) {
    writable_ = false;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    problem_ = errno;  // what the other one said last may still be read
    readable_ = true;
    return false;
  }
  wrote(static_cast<std::size_t>(moved));
  settle(room);
  return true;
}

void TcpLine::wrote(std::size_t bytes) {
  written_ += bytes;
  may_lack_answers_ = true;
  const std::size_t frames = std::min(bytes, out_.size() - sent_), of_part = bytes - frames;
  sent_ += frames;
  if (sent_ == out_.size()) {
    out_.clear();
    sent_ = 0;
  }
  if (of_part == 0) return;
  sending_.left -= of_part;
  const auto found = sends_.find(sending_.number);
  if (found == sends_.end()) return;
  found->second.done += of_part;
  if (sending_.left > 0) return;
  // Its end at once; its next part after what others want to send.
  const bool last = found->second.done == found->second.message.bytes;
  if (last) {
    begin_part(sending_.number);
  } else {
    waiting_.push_back({Outgoing::What::parts, sending_.number});
  }
}

// What the system has taken is the caller's again.
void TcpLine::settle(Mailroom& room) {
  for (; !marks_.empty() && marks_.front().at <= written_; marks_.pop_front()) {
    const auto found = sends_.find(marks_.front().number);
    if (found == sends_.end()) continue;  // given up
    const Ticket ticket = found->second.ticket;
    sends_.erase(found);
    room.finish(ticket);
  }
}

// A host that is gone or cut off answers nothing, neither data nor the question whether it has room
// again; one that is slow to read answers both, though it takes no more, so TCP_USER_TIMEOUT, which
// ends both, is none. While all is answered, keep-alive asks. The system asks after longer and
// longer times, so it is not long silence that counts, but that the last that it sent stays without
// an answer; where it can send nothing any more, a silence longer than it ever waits. One question
// of two within half a second may stay without an answer (net.ipv4.tcp_invalid_ratelimit).
void TcpLine::check_answers(Mailroom& room) {
  constexpr int most_unanswered = 30, most_silent = 150;  // the system asks every 120 s at least
  const auto now = Clock::now();
  const auto passed = now - checked_;
  if (passed < between_checks_) return;
  checked_ = now;
  int waits = 0;  // bytes, not sent or not acknowledged
  if (ioctl(socket_.get(), SIOCOUTQ, &waits) == 0 && waits == 0) {
    may_lack_answers_ = false;
    unanswered_ = silent_ = 0;
    if (out_.empty()) std::vector<std::byte>().swap(out_);  // the room of a burst
    return;
  }
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(socket_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return;
  const bool heard = std::chrono::milliseconds(info.tcpi_last_ack_recv) < passed;
  const bool data = info.tcpi_unacked > 0, asked = info.tcpi_probes > 0;
  silent_ = !heard && (data || asked) ? silent_ + 1 : 0;
  const bool last = data && info.tcpi_last_ack_recv > info.tcpi_last_data_sent;
  unanswered_ = !heard && (last || asked) ? unanswered_ + 1 : 0;
  if (unanswered_ < most_unanswered && silent_ < most_silent) return;
  const std::chrono::duration<double> time = std::max(unanswered_, silent_) * between_checks_;
  end(room, concat("it has answered nothing for ", time.count(),
                   " s: its host is gone, or the network between"));
}

}  // namespace peal::comm
