// SPDX-License-Identifier: Apache-2.0
// Mailroom: a process's end of all mailboxes of a job, over which its groups send messages. To each
// rank there is a line (line.h), be it memory or a network.
//
// A message belongs to a group and a channel. It meets the first receive, in the order of posting,
// that it fits, whatever line it came by, when it comes or when that is posted: never do both wait.
// All waiting messages go forward together: where many tickets are tested in turn, the first looks
// at all lines, and each finds what is its own. Nothing here waits. A rank of this
// node that is gone takes nothing and sends nothing, and the control plane says so; of another one
// the line says so, and test() throws. Thread safety: any thread.
#pragma once

#include <peal/comm/transport/mail/line.h>
#include <peal/comm/transport/transport.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace peal::comm {

class Mailroom {
 public:
  // `lines`: by rank; to itself too. `ask`: asks the system which of them can be moved, once for
  // all, before they are looked at.
  Mailroom(int rank, std::vector<std::unique_ptr<Line>> lines, std::function<void()> ask = {});
  ~Mailroom();
  Mailroom(const Mailroom&) = delete;
  Mailroom& operator=(const Mailroom&) = delete;

  int rank() const { return rank_; }
  int world() const { return static_cast<int>(lines_.size()); }

  // As Transport's. The group outlives its tickets.
  Ticket post(const MailGroup& group, Channel channel, std::span<const Message> round);
  bool test(Ticket ticket);
  void cancel(Ticket ticket);
  std::vector<Message> open_messages(Ticket ticket) const;
  // Nobody asks for what has come and will come for that group; its number comes no more.
  void forget(std::uint64_t group);
  // The ranks of other nodes hear of a failure that this one knows of. Once.
  void tell(const std::string& why);
  // What is to be told goes, 200 ms at most; nothing is sent or received afterwards. The destructor
  // does it, and who ends its process without one.
  void leave();

  // For lines. A whole message or an offer has come, from that rank: where the content of a whole
  // one belongs, who calls puts it there at once; null: nowhere.
  std::byte* arrive(int line, const Parcel& parcel);
  // A message of the ticket is done.
  void finish(Ticket ticket);
  // A line has ended too early, or its rank has failed: tests throw this.
  void give_up(const std::string& why) {
    if (trouble_.empty()) trouble_ = why;
  }
  // A line has ended as it should: who waits for its rank still waits in vain.
  void line_is_over() { lines_are_over_ = true; }

 private:
  using Address = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;  // group, channel
  // A message that nobody has a receive for.
  struct Arrived {
    int from, line;  // in the group, and here
    std::uint64_t number;
    std::size_t bytes;
    bool whole;
    std::vector<std::byte> content{};  // of a whole one
  };
  // One of the two is empty, or what it has does not fit the other.
  struct Box {
    std::deque<Receive> expected{};
    std::deque<Arrived> arrived{};
  };
  struct Posted {
    Address address;
    std::uint64_t seen = 0;  // how often all were looked at when it was tested last
    std::size_t open = 0;
    std::string problem{};  // what test() throws
  };

  void look();
  void receive(Box& box, const Receive& receive);
  bool meet(const Receive& receive, const Arrived& arrived);
  void drop(const Arrived& arrived);
  void withdraw(Ticket ticket);
  void check_lines(Ticket ticket, const Posted& posted) const;
  std::string why_none_sends(const Receive& receive) const;

  int rank_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Line>> lines_;
  std::function<void()> ask_;
  std::map<Address, Box> boxes_;
  std::set<std::uint64_t> forgotten_;  // groups
  std::unordered_map<Ticket, Posted> posted_;
  Ticket next_ = 1;
  std::uint64_t looks_ = 0;
  std::string trouble_;
  bool told_ = false, left_ = false, lines_are_over_ = false;
};

}  // namespace peal::comm
