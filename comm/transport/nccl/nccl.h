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
#include <memory>
#include <vector>

namespace peal::comm {

class NcclTransport : public Transport,
                      private NativeCollectives,
                      private DeviceQueue,
                      private SymmetricMemory {
 public:
  // Collective over `ranks`, through which they agree on NCCL's unique id.
  static std::unique_ptr<NcclTransport> create(Rendezvous& ranks, Device device,
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
  StorageRef allocate(std::size_t bytes) override { return communicator_->allocate(bytes); }
  void be_quiet() const;
  ncclRedOp_t reduction(const NativeCall& call);

  std::shared_ptr<Communicator> communicator_;
  int rank_, world_;
  Device device_;
  Stream stream_;
  QueueTail tail_{stream_};
  Hopeless hopeless_ = [] {};
  std::vector<Message> posted_;    // of the round that is not yet in the queue
  ncclRedOp_t made_ = ncclNumOps;  // for the call that is not yet in the queue
  Ticket next_ = 1;
};

}  // namespace peal::comm
