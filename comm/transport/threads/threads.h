// SPDX-License-Identifier: Apache-2.0
// The threads transport: ranks are threads of one process, a message is one copy made by the
// receiver.
//
// A Switchboard has a mailbox for each ordered pair of ranks. A send lies there, as a pointer,
// until the receiver has copied it: the rendezvous semantics that schedules are verified for. Over
// a Network it cannot be taken before it has arrived.
// Thread safety: the switchboard is shared by all ranks; a ThreadsTransport belongs to one.
#pragma once

#include <peal/comm/transport/threads/network.h>
#include <peal/comm/transport/transport.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace peal::comm {

class Switchboard {
 public:
  explicit Switchboard(int world);
  int world() const { return world_; }
  // The switchboard of a sub-group: the first to ask makes it, the others get the same one. It
  // lives as long as one of them does.
  std::shared_ptr<Switchboard> child(std::uint64_t id, int world);

 private:
  friend class ThreadsTransport;
  struct Parcel {
    Channel channel;
    const std::byte* data;
    std::size_t bytes;
    std::shared_ptr<std::atomic<bool>> taken;
    Network::Clock::time_point arrives;  // `never`: dropped, and holds up those behind it
  };
  struct Mailbox {
    std::mutex mutex;
    std::deque<Parcel> parcels;
  };
  Mailbox& mailbox(int from, int to) {
    return mailboxes_[static_cast<std::size_t>(from * world_ + to)];
  }

  int world_;
  std::vector<Mailbox> mailboxes_;
  std::mutex children_mutex_;
  std::unordered_map<std::uint64_t, std::weak_ptr<Switchboard>> children_;
};

class ThreadsTransport : public Transport {
 public:
  ThreadsTransport(std::shared_ptr<Switchboard> board, int rank)
      : switchboard_(std::move(board)), rank_(rank) {}

  // What is posted from now on goes over it. REQUIRES: this transport is the world's.
  void connect(std::shared_ptr<Network> network);

  std::string_view name() const override { return "threads"; }
  int rank() const override { return rank_; }
  int world() const override { return switchboard_->world(); }
  std::unique_ptr<Transport> subset(const std::vector<int>& ranks, std::uint64_t id) override;
  Ticket post(Channel channel, std::span<const Message> round) override;
  bool test(Ticket ticket) override;
  bool cancel(Ticket ticket) override;
  std::vector<Message> open(Ticket ticket) const override;
  Limits limits() const override { return {.nap = std::chrono::microseconds(network_ ? 50 : 0)}; }
  void check_thread() const override {}
  bool travels_beside(bool) const override { return network_ != nullptr; }
  void set_hopeless(std::function<void()>) override {}
  void abandon() override {}
  NativeCollectives* native() override { return nullptr; }
  DeviceQueue* queue() override { return nullptr; }
  SymmetricMemory* memory() override { return nullptr; }

 private:
  struct Sent {
    Message message;
    std::shared_ptr<std::atomic<bool>> taken;
  };
  struct Posted {
    Channel channel;
    std::vector<Sent> sends{};  // not taken yet
    std::size_t receives = 0;   // still to come
  };
  struct Expected {
    Message message;
    Ticket ticket;
  };
  struct ByNumber {
    bool operator()(Channel a, Channel b) const {
      return a.sequence != b.sequence ? a.sequence < b.sequence : a.signature < b.signature;
    }
  };
  bool receive(Channel channel, int from, const Message& message);
  bool receive_any(Channel channel, const Message& message, const std::vector<int>& spoken_for);
  std::int64_t count_in_channel(Channel channel, int to);

  std::shared_ptr<Switchboard> switchboard_;
  int rank_;
  Ticket next_ = 1;
  std::unordered_map<Ticket, Posted> posted_;
  std::map<Channel, std::deque<Expected>, ByNumber> expected_;  // in the order of posting
  int next_source_ = 0;                                         // any source: each gets its turn
  std::vector<int> spoken_for_;  // test()'s own, kept: a rank that waits calls it all the time

  std::shared_ptr<Network> network_;  // null: messages are there at once
  std::uint64_t group_ = 0;
  std::vector<int> members_;                                     // the world's ranks of this group
  std::map<Channel, std::vector<std::int64_t>, ByNumber> sent_;  // messages, by peer
};

}  // namespace peal::comm
