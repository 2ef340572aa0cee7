// SPDX-License-Identifier: Apache-2.0
// The threads transport: ranks are threads of one process, a message is one copy made by the
// receiver.
//
// A Switchboard has a mailbox for each ordered pair of ranks. A send lies there, as a pointer,
// until the receiver has copied it: the rendezvous semantics that schedules are verified for.
// Thread safety: the switchboard is shared by all ranks; a ThreadsTransport belongs to one.
#pragma once

#include <peal/comm/transport/transport.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace peal::comm {

class Switchboard {
 public:
  explicit Switchboard(int world);
  int world() const { return world_; }
  // The switchboard of a sub-group: the first to ask makes it, the others get the same one.
  std::shared_ptr<Switchboard> child(std::uint64_t id, int world);

 private:
  friend class ThreadsTransport;
  struct Parcel {
    Channel channel;
    const std::byte* data;
    std::size_t bytes;
    std::shared_ptr<std::atomic<bool>> taken;
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
  std::unordered_map<std::uint64_t, std::shared_ptr<Switchboard>> children_;
};

class ThreadsTransport : public Transport {
 public:
  ThreadsTransport(std::shared_ptr<Switchboard> board, int rank)
      : board_(std::move(board)), rank_(rank) {}

  std::string_view name() const override { return "threads"; }
  int rank() const override { return rank_; }
  int world() const override { return board_->world(); }
  std::unique_ptr<Transport> subset(const std::vector<int>& ranks, std::uint64_t id) override;
  Ticket post(Channel channel, std::span<const Message> round) override;
  bool test(Ticket ticket) override;
  bool cancel(Ticket ticket) override;

 private:
  struct Posted {
    Channel channel;
    std::deque<Message> receives;  // still to come, in order
    std::vector<std::pair<int, std::shared_ptr<std::atomic<bool>>>> sends;
  };
  bool receive(Channel channel, const Message& message);

  std::shared_ptr<Switchboard> board_;
  int rank_;
  Ticket next_ = 1;
  std::unordered_map<Ticket, Posted> posted_;
};

}  // namespace peal::comm
