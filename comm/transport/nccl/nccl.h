// SPDX-License-Identifier: Apache-2.0
// The NCCL transport, which is stream-ordered: schedules over grouped ncclSend and ncclRecv, and
// NCCL's own collectives for what it has (native.h). It moves what lies on one device of this rank;
// CPU tensors, messages (which NCCL would match by order alone) and the control plane stay with the
// transport of the CPU that the group has already.
//
// Each rank needs a GPU of its own: NCCL refuses two ranks on one, unless each process has another
// NCCL_HOSTID (then they talk over sockets: NCCL_SOCKET_IFNAME=lo). Good for tests alone.
// Thread safety: one thread at a time (the engine's lock).
#pragma once

#include <peal/comm/store/rendezvous.h>
#include <peal/comm/transport/nccl/communicator.h>
#include <peal/comm/transport/transport.h>

#include <chrono>
#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

namespace peal::comm {

class NcclTransport : public Transport,
                      private NativeCollectives,
                      private DeviceQueue,
                      private SymmetricMemory {
 public:
  // Collective over `ranks`, through which they agree on NCCL's unique id, and compare their NCCL's
  // versions: an Error where those differ. Rank 0 logs where each rank's GPU is (peers.h).
  static std::unique_ptr<NcclTransport> create(Rendezvous& ranks, Device device,
                                               const NcclOptions& options,
                                               std::chrono::milliseconds deadline,
                                               const Hopeless& hopeless);
  NcclTransport(std::shared_ptr<Communicator> communicator, int rank, int world, Device device);

  std::string_view name() const override { return "nccl"; }
  int rank() const override { return rank_; }
  int world() const override { return world_; }
  Limits limits() const override { return {}; }
  void check_thread() const override {}
  std::unique_ptr<Transport> subset(const std::vector<int>& ranks, std::uint64_t id) override;
  Ticket post(Channel channel, std::span<const Message> round) override;
  bool test(Ticket ticket) override;
  // What is not whole in the queue may still come to be.
  bool cancel(Ticket) override { return false; }
  std::vector<Message> open(Ticket) const override { return posted_; }
  void set_hopeless(std::function<void()> hopeless) override { hopeless_ = std::move(hopeless); }
  void abandon() override { communicator_->abort(); }
  NativeCollectives* native() override { return this; }
  DeviceQueue* queue() override { return this; }
  SymmetricMemory* memory() override { return this; }

 private:
  bool has(const NativeCall& call) const override;
  Ticket start(const NativeCall& call) override;
  bool scales(const NativeCall& call) const override;
  Device device() const override { return device_; }
  Stream stream() const override { return stream_; }
  QueueTail& tail() override { return tail_; }
  bool stream_ordered() const override { return true; }
  bool capturable() const override { return true; }
  void check() override;
  StorageRef allocate(std::size_t bytes, const EveryRank& every) override {
    return communicator_->allocate(bytes, every, hopeless_);
  }

  // What makes NCCL connect ranks, or buffers, in a first call: that one may wait for the others.
  struct Kind {
    int what = 0, peer = 0, type = 0, op = 0;
    std::uint64_t size = 0;  // elements; of a message the bits of its bytes
    std::uint64_t in = 0, in_at = 0, out = 0, out_at = 0;  // in memory that NCCL knows
    auto operator<=>(const Kind&) const = default;
  };
  Kind kind_of(const NativeCall& call) const;
  Kind kind_of(const Message& message) const;
  Ticket put(const std::vector<Kind>& kinds, std::string_view what, const Communicator::Call& call);
  void be_quiet();

  std::shared_ptr<Communicator> communicator_;
  int rank_, world_;
  Device device_;
  Stream stream_;
  QueueTail tail_{stream_};
  Hopeless hopeless_ = [] {};
  std::set<Kind> seen_;
  std::optional<Aside> first_;   // the first call of its kind, that is not yet in the queue
  std::vector<Message> posted_;  // of the round that is not yet in the queue
  Ticket next_ = 1;
};

}  // namespace peal::comm
