// SPDX-License-Identifier: Apache-2.0
// The CUDA IPC transport, which is stream-ordered: ranks that are processes of one node, on GPUs
// that reach each other's memory or on one GPU, run the one-sided programs of comm/algorithms by a
// kernel that walks them (interpreter.h), in a window of their devices (window.h); other schedules
// run by messages between them (mail.h). Nothing asks the host, so it is quick for small messages,
// and goes where NCCL does not: to ranks that share a GPU. Those take turns on it, so that each
// meeting costs a time slice, unless NVIDIA's MPS lets their kernels run beside each other.
//
// Tensors of ProcessGroup::allocate() (DDP's buckets) lie in memory that all ranks of their group
// reach; what is large is done there in place, the rest goes through the ranks' rooms.
// Sub-groups use the world's stream, so their operations keep the order of the calls: kernels that
// wait for peers never wait for each other. Thread safety: one thread at a time (the engine's
// lock), but for abandon().
#pragma once

#include <peal/comm/store/rendezvous.h>
#include <peal/comm/transport/cuda_ipc/programs.h>
#include <peal/comm/transport/cuda_ipc/segment.h>
#include <peal/comm/transport/cuda_ipc/window.h>
#include <peal/comm/transport/transport.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace peal::comm {

struct CudaIpcOptions {
  // Of a block's room for one operation, and of a parcel of mail: bytes, multiples of 16; a room
  // has at least 32 for each rank.
  std::int64_t half = 512 << 10, parcel = 256 << 10;
  int blocks = ipc::most_blocks;  // at most, of a kernel
  // All-reduces of up to so many bytes are one-shot (slots.h), if the rooms hold them. -1: as
  // measured on machines with NVLink by others (vLLM's custom all-reduce), 512 KiB for up to four
  // ranks, 256 KiB for more.
  std::int64_t one_shot = -1;
  // PEAL_IPC_ONE_SHOT: bytes.
  static CudaIpcOptions from_environment();
};

class CudaIpcTransport : public Transport,
                         private NativeCollectives,
                         private DeviceQueue,
                         private SymmetricMemory {
 public:
  using Hopeless = std::function<void()>;  // throws where waiting is of no more use

  // Collective over `ranks`: all get one, or all throw the same Error, after which the rendezvous
  // is as good as before.
  static std::unique_ptr<CudaIpcTransport> create(Rendezvous& ranks, Device device,
                                                  const CudaIpcOptions& options,
                                                  std::chrono::milliseconds deadline,
                                                  const Hopeless& hopeless);
  ~CudaIpcTransport() override;
  CudaIpcTransport(const CudaIpcTransport&) = delete;
  CudaIpcTransport& operator=(const CudaIpcTransport&) = delete;

  std::string_view name() const override { return "cuda_ipc"; }
  int rank() const override { return group_.rank; }
  int world() const override { return group_.world; }
  Limits limits() const override { return {}; }
  void check_thread() const override {}
  std::unique_ptr<Transport> subset(const std::vector<int>& ranks, std::uint64_t id) override;
  Ticket post(Channel channel, std::span<const Message> round) override;
  bool test(Ticket) override { return true; }  // what is posted is in the queue
  bool cancel(Ticket) override { return false; }
  std::vector<Message> open(Ticket) const override { return {}; }
  void set_hopeless(std::function<void()> hopeless) override { hopeless_ = std::move(hopeless); }
  void abandon() override { end_kernels(); }
  NativeCollectives* native() override { return this; }
  DeviceQueue* queue() override { return this; }
  SymmetricMemory* memory() override { return this; }
  // How many collectives of this group have worked on tensors where they lie. Waits for the queue.
  std::int64_t in_place() const;

 private:
  bool has(const NativeCall&) const override { return true; }
  Ticket start(const NativeCall& call) override;
  bool scales(const NativeCall&) const override { return true; }
  bool sums_by_rank() const override { return true; }
  Device device() const override { return device_; }
  Stream stream() const override { return stream_; }
  QueueTail& tail() override { return *tail_; }
  bool stream_ordered() const override { return true; }
  // Kernels keep their counts on the device, so that a replay goes on where the last call was.
  bool capturable() const override { return true; }
  void check() override {}
  StorageRef allocate(std::size_t bytes, const EveryRank& every) override;

  struct Words;
  struct Offer;
  struct Released;
  // A segment, by number from 1, that is equal on all ranks.
  struct Kept {
    std::shared_ptr<ipc::Segment> segment;  // null: freed, or this rank had none
    unsigned open;                          // who has it open, bits by rank
  };
  struct Made {
    std::shared_ptr<ipc::Segment> segment;
    std::uint64_t number = 0;
    std::string problem;  // why not: equal in meaning on all who were to reach it
  };
  CudaIpcTransport(Device device, Stream stream, std::shared_ptr<QueueTail> tail,
                   const CudaIpcOptions& options, int rank, int world,
                   std::chrono::milliseconds deadline, Hopeless hopeless);
  void move_in(std::shared_ptr<ipc::Segment> window);
  void end_kernels() const;
  void be_quiet() const;
  std::vector<Offer> exchange(const Offer& mine);
  std::unique_ptr<Transport> make_subset(const std::vector<int>& ranks);
  void give_back();
  Made make(const std::vector<int>& ranks, std::size_t bytes);
  ipc::Location locate(const std::byte* data, std::int64_t bytes, std::byte** parts) const;

  CudaIpcOptions options_;
  Device device_;
  Stream stream_;
  std::shared_ptr<QueueTail> tail_;  // of that stream, and so of sub-groups too
  std::chrono::milliseconds deadline_;
  Hopeless hopeless_;
  ipc::Group group_ = {};
  std::shared_ptr<Words> words_;  // page-locked
  std::optional<ipc::Programs> programs_;
  std::shared_ptr<ipc::Segment> window_;
  std::vector<Kept> segments_;          // of allocate(), and the windows of sub-groups
  std::shared_ptr<Released> released_;  // by tensors and sub-groups, at any time
  std::function<void()> leave_;         // of a sub-group: its window can be given back
  Ticket next_ = 1;
};

}  // namespace peal::comm
