// SPDX-License-Identifier: Apache-2.0
// Lines over TCP, between nodes: one connection to each rank there, frames (frame.h) both ways.
//
// Nothing here waits: what the system does not take now goes when it says that there is room
// (TcpWatch, epoll). Whole messages go through a buffer on either side; the parts of a large one
// from the sender's memory and into the receiver's. A rank may have `window` bytes of whole
// messages on their way that nobody has received; more is offered. A message is there once its end
// has come: where it is given up in the middle of a part, nothing is sent for the rest of that, and
// no end, so the connection serves others still.
//
// Who is at the other end has shown that it is of the job (joining.h), and is not believed further:
// frames that break the rules end the line. So does a connection that ends without a bye. All
// tests of the mailroom then throw, with the rank's name. Socket buffers stay the system's, which
// sizes them by the path; a size of one's own is capped far below that (net.core.wmem_max).
// Thread safety: as Line.
#pragma once

#include <peal/comm/transport/mail/line.h>
#include <peal/comm/transport/tcp/frame.h>
#include <peal/comm/transport/tcp/own_socket.h>

#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace peal::comm {

class TcpLine : public Line {
 public:
  static constexpr std::size_t window = std::size_t{1} << 20;

  // Takes over a connection to that rank, which does not block; `who` is its name in errors. A host
  // is gone that has answered nothing in 30 checks in a row.
  TcpLine(int peer, std::string who, int descriptor,
          std::chrono::milliseconds between_checks = std::chrono::seconds(1));

  void take_in(Mailroom& room) override;
  void write(Mailroom& room) override;
  void add_met(std::size_t bytes) override { met_ += charge(bytes); }
  void tell(const std::string& why) override;
  std::string over() const override { return over_; }
  bool leave(Mailroom& room) override;
  bool ended() override;

 private:
  friend class TcpWatch;
  using Clock = std::chrono::steady_clock;
  struct Run {  // of bytes of a message's part that are still to move
    std::uint64_t number = 0;
    std::size_t left = 0;
  };
  struct Mark {
    std::uint64_t at;  // once so much is written
    std::uint64_t number;
  };
  static constexpr int most_turns = 16;  // of the system; others have their turn, too
  // What a whole message takes of the window.
  static std::size_t charge(std::size_t bytes) { return TcpFrame::size + bytes; }

  void append(TcpFrame::Kind kind, const Parcel& parcel = {}, const void* content = nullptr);
  void fill();
  void begin(std::uint64_t number);
  void begin_part(std::uint64_t number);
  bool move(Mailroom& room);
  void wrote(std::size_t bytes);
  void settle(Mailroom& room);
  void check_answers(Mailroom& room);

  void parse(Mailroom& room);
  void take(Mailroom& room, const TcpFrame& frame);
  void take_part(const TcpFrame& frame);
  std::byte* place();
  void end(Mailroom& room, std::string_view why);

  int peer_;
  std::string who_;
  OwnSocket socket_;
  bool readable_ = true, writable_ = true;  // as far as is known
  std::string over_;

  std::vector<std::byte> out_;  // frames, and whole messages; a part's bytes come after them
  std::size_t sent_ = 0;        // of out_
  Run sending_;
  std::uint64_t queued_ = 0, written_ = 0;  // bytes, from the beginning
  std::deque<Mark> marks_;                  // sends that are done then
  std::set<std::uint64_t> offered_;         // and not answered
  std::uint64_t sent_whole_ = 0, peers_met_ = 0;
  std::uint32_t frames_out_ = 0;
  std::string failure_;  // to be told
  bool left_ = false;
  int problem_ = 0;  // of the system's, that a write has met
  const Clock::duration between_checks_;
  Clock::time_point checked_{};
  bool may_lack_answers_ = false;    // to what was written
  int unanswered_ = 0, silent_ = 0;  // checks in a row

  std::unique_ptr<std::byte[]> in_;  // memory is touched as bytes come: there are many lines
  std::size_t begin_ = 0, end_ = 0;  // of what is there in in_
  Run arriving_;
  std::uint64_t next_number_ = 0;
  std::uint64_t came_whole_ = 0, met_ = 0, told_met_ = 0;
  std::uint32_t frames_in_ = 0;
};

// Which connections can be moved: one question to the system for all.
class TcpWatch {
 public:
  TcpWatch();
  // REQUIRES: it is not asked once a line is gone.
  void add(TcpLine& line);
  void ask();

 private:
  OwnSocket epoll_;
};

}  // namespace peal::comm
