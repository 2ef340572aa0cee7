// SPDX-License-Identifier: Apache-2.0
// Mailroom: a process's end of all mailboxes of a node, over which its groups send messages. For
// each ordered pair of ranks there is a ring (ring.h) in one segment.
//
// A small message goes into the ring whole (MPI's eager protocol), and is the receiver's when it
// looks. A large one is offered first; who has a receive for it accepts, and then its parts follow
// (MPI's rendezvous), so that no message that nobody expects yet takes more room than a line. Whole
// messages that nobody has received are kept apart by who looks, so that none stands before
// another's; their sender offers even small ones once too many of them wait.
//
// A message belongs to a group and a channel. It meets the first receive, in the order of posting,
// that it fits, when it comes or when that is posted: never do both wait. All waiting messages go
// forward whenever one ticket is tested. Nothing here waits: a rank that is gone takes nothing and
// sends nothing, and the control plane says so. Thread safety: any thread.
#pragma once

#include <peal/comm/memory/shared_segment.h>
#include <peal/comm/transport/shm/ring.h>
#include <peal/comm/transport/transport.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace peal::comm {

class Mailroom {
 public:
  // Ranks of a group that exchange messages; peers of its messages are its own numbers.
  struct Group {
    std::uint64_t id = 0;
    int rank = 0;
    std::vector<int> members{};  // by rank: who it is here
  };

  // Collective over ranks of one node. Error on all ranks, NoSharedMemory, where there is none.
  static std::shared_ptr<Mailroom> open(Rendezvous& ranks);

  int rank() const { return rank_; }
  int world() const { return static_cast<int>(lines_.size()); }

  // As Transport's.
  Ticket post(const Group& group, Channel channel, std::span<const Message> round);
  bool test(Ticket ticket);
  void cancel(Ticket ticket);
  std::vector<Message> open_messages(Ticket ticket) const;
  // Nobody asks for what came for that group any more.
  void forget(std::uint64_t group);

 private:
  using Address = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;  // group, channel
  struct Parcel;                                                            // how a record begins
  // What is to be written: this rank's message of that number, or the answer to another's.
  struct Outgoing {
    enum class What { message, parts, answer } what;
    std::uint64_t number;
  };
  struct Send {
    Ticket ticket;
    Message message;
    std::uint64_t group;
    Channel channel;
    int from;  // this rank, in the group
    std::size_t done = 0;
  };
  struct Receive {
    Ticket ticket;
    Message message;
    std::size_t done = 0;
  };
  // To and from one rank. Numbers are those of messages between the two, in one direction.
  struct Line {
    RingWriter out;
    RingReader in;
    std::deque<Outgoing> waiting{};
    std::map<std::uint64_t, Send> sends{};        // of those not done
    std::map<std::uint64_t, Receive> accepted{};  // of those whose parts come
    std::uint64_t numbers = 0;
    std::uint64_t sent_whole = 0;  // bytes of records
  };
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
    std::size_t open = 0;
    std::string problem{};  // what test() throws
  };

  Mailroom(std::shared_ptr<SharedSegment> segment, int rank, int world, std::size_t ring);
  void look();
  void take_in(Line& line);
  void arrive(Line& line, const Parcel& parcel);
  void write(Line& line);
  bool write_message(Line& line, std::uint64_t number);
  bool write_parts(Line& line, std::uint64_t number);
  void receive(Box& box, const Receive& receive);
  // A receive and what it gets. True where the bytes of a whole message are to be copied.
  bool meet(const Receive& receive, int from, int line, std::uint64_t number, std::size_t bytes,
            bool whole);
  void drop(const Arrived& arrived);
  void finish(Ticket ticket);
  void withdraw(Ticket ticket);
  int line_of(const Line& line) const { return static_cast<int>(&line - lines_.data()); }

  std::shared_ptr<SharedSegment> segment_;
  int rank_;
  std::size_t ring_;
  mutable std::mutex mutex_;
  std::vector<Line> lines_;  // by rank; to itself too
  std::map<Address, Box> boxes_;
  std::unordered_map<Ticket, Posted> posted_;
  Ticket next_ = 1;
};

}  // namespace peal::comm
