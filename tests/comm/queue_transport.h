// SPDX-License-Identifier: Apache-2.0
// A stream-ordered transport over queue_device.h, with NCCL's manners: a round is one thing in the
// stream, which stands there until all its messages have met; rounds between two ranks match by
// order alone; after a call it is busy for a while, and puts the round into the stream late; a
// message that finds another size waits for ever; abandon() ends what waits. Thread safety: as
// Transport; the switchboard is shared by all ranks.
#pragma once

#include <peal/comm/transport/transport.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace peal::testing {

// Where the ranks of a group meet.
class MeetingPlace {
 public:
  explicit MeetingPlace(int world) : world_(world), mailboxes_(std::size_t(world * world)) {}
  int world() const { return world_; }
  std::shared_ptr<MeetingPlace> child(std::uint64_t id, int world);

 private:
  friend class QueueTransport;
  struct Parcel {
    const std::byte* data;
    std::size_t bytes;
    std::shared_ptr<bool> taken;
  };
  std::deque<Parcel>& mailbox(int from, int to) {
    return mailboxes_[static_cast<std::size_t>(from * world_ + to)];
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int world_;
  std::vector<std::deque<Parcel>> mailboxes_;
  std::map<std::uint64_t, std::shared_ptr<MeetingPlace>> children_;
};

// What a rank's transports have been asked for, all of its groups'.
struct QueueLog {
  std::mutex mutex;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> posted;  // group, operation; first rounds
  int busy = 2;         // a round is put into the stream by this many looks
  std::string fails{};  // what check() says; empty: nothing
  int aborted = 0;
  // The device takes no more: who puts something into its queue stands there until abandon().
  std::atomic<bool> full{false}, stands{false};
};

class QueueTransport : public comm::Transport, private comm::DeviceQueue {
 public:
  QueueTransport(std::shared_ptr<MeetingPlace> place, int rank, Device device,
                 std::shared_ptr<QueueLog> log, std::uint64_t group = 0)
      : place_(std::move(place)),
        log_(std::move(log)),
        rank_(rank),
        device_(device),
        group_(group),
        stream_(Stream::create(device)) {}
  ~QueueTransport() override { stream_.synchronize(); }

  std::string_view name() const override { return "queue"; }
  int rank() const override { return rank_; }
  int world() const override { return place_->world(); }
  Limits limits() const override { return {}; }
  void check_thread() const override {}
  std::unique_ptr<Transport> subset(const std::vector<int>& ranks, std::uint64_t id) override;
  comm::Ticket post(comm::Channel channel, std::span<const comm::Message> round) override;
  bool test(comm::Ticket ticket) override;
  bool cancel(comm::Ticket) override { return false; }
  std::vector<comm::Message> open(comm::Ticket) const override { return round_; }
  void set_hopeless(std::function<void()>) override {}
  void abandon() override;
  comm::NativeCollectives* native() override { return nullptr; }
  comm::DeviceQueue* queue() override { return this; }
  comm::SymmetricMemory* memory() override { return nullptr; }

 private:
  Device device() const override { return device_; }
  Stream stream() const override { return stream_; }
  comm::QueueTail& tail() override { return tail_; }
  bool stream_ordered() const override { return true; }
  bool capturable() const override { return false; }
  void check() override;

  struct State {  // of the rank at the place; under its mutex
    bool aborted = false;
  };
  static void meet(MeetingPlace& place, State& state, int rank,
                   const std::vector<comm::Message>& round);

  std::shared_ptr<MeetingPlace> place_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
  std::shared_ptr<QueueLog> log_;
  int rank_;
  Device device_;
  std::uint64_t group_;
  Stream stream_;
  comm::QueueTail tail_{stream_};
  Stream posted_in_;
  std::vector<comm::Message> round_;  // not yet in the stream
  std::uint64_t last_sequence_ = ~std::uint64_t{0};
  int looks_ = 0;
  comm::Ticket next_ = 1;
};

}  // namespace peal::testing
