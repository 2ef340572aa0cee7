// SPDX-License-Identifier: Apache-2.0
// Line: what joins a mailroom with that of one other rank, both ways: rings in shared memory
// (shm/ring_line.h) or a connection over TCP (tcp/tcp_line.h).
//
// A small message goes over it whole (MPI's eager protocol), and is the receiver's when it looks. A
// large one is offered first; who has a receive for it accepts, and then its parts follow (MPI's
// rendezvous), so that no message that nobody expects yet takes more room than its envelope. Whole
// messages that nobody has received are kept apart by who looks, so that none stands before
// another's; a sender offers even small ones once too many of them wait.
//
// Numbers are those of messages between the two, in one direction. Nothing here waits.
// Thread safety: of its mailroom, under whose lock all is called.
#pragma once

#include <peal/comm/transport/mail/parcel.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace peal::comm {

class Mailroom;

// Ranks of a group that exchange messages; peers of its messages are its own numbers.
struct MailGroup {
  std::uint64_t id = 0;
  int rank = 0;
  std::vector<int> members{};  // by rank: who it is in the mailroom
};

// Posted messages, on their way.
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
  const MailGroup* group;
  std::size_t done = 0;
};

class Line {
 public:
  virtual ~Line() = default;

  // Hands over what has come.
  virtual void take_in(Mailroom& room) = 0;
  // Sends what waits, as far as there is room for it.
  virtual void write(Mailroom& room) = 0;
  // A whole message of so many bytes has met its receiver.
  virtual void add_met(std::size_t bytes) = 0;
  // This rank's group has failed: the other one is told, where it would not know. Never waits.
  virtual void tell(const std::string& why) { static_cast<void>(why); }
  // The mailroom goes: sends some more of what remains to be said. True once that was all; nothing
  // is sent afterwards.
  virtual bool leave(Mailroom& room) {
    static_cast<void>(room);
    return true;
  }
  // Once it has left: whether the other one has, too. What comes until then is dropped.
  virtual bool ended() { return true; }
  // Why nothing more will come; empty: it may.
  virtual std::string over() const { return {}; }

  void post(const Send& send) {
    const std::uint64_t number = numbers_++;
    waiting_.push_back({Outgoing::What::message, number});
    sends_.emplace(number, send);
  }
  // A message that was offered has met its receive.
  void accept(std::uint64_t number, const Receive& receive) {
    if (receive.message.bytes != 0) accepted_.emplace(number, receive);
    waiting_.push_back({Outgoing::What::answer, number});
  }
  void withdraw(Ticket ticket) {
    const auto ours = [&](const auto& each) { return each.second.ticket == ticket; };
    std::erase_if(sends_, ours);
    std::erase_if(accepted_, ours);
  }
  const std::map<std::uint64_t, Send>& sends() const { return sends_; }
  const std::map<std::uint64_t, Receive>& accepted() const { return accepted_; }

 protected:
  // What is to be written: this rank's message of that number, or the answer to another's.
  struct Outgoing {
    enum class What { message, parts, answer } what;
    std::uint64_t number;
  };
  // The envelope of a message that is sent.
  static Parcel parcel_of(const Send& send, std::uint64_t number, Parcel::Kind kind) {
    return {.group = send.group,
            .channel = send.channel,
            .number = number,
            .bytes = send.message.bytes,
            .from = send.from,
            .kind = kind};
  }

  std::deque<Outgoing> waiting_;
  std::map<std::uint64_t, Send> sends_;        // of those not done
  std::map<std::uint64_t, Receive> accepted_;  // of those whose parts come

 private:
  std::uint64_t numbers_ = 0;
};

}  // namespace peal::comm
