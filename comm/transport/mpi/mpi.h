// SPDX-License-Identifier: Apache-2.0
// The MPI transport: point-to-point messages and native collectives over a communicator of its own.
//
// The channel is the tag. MPI counts are ints, so a message goes in whole pieces of 1 GiB (tests
// have smaller ones) and a last one that is smaller, if need be empty: then ranks that disagree on
// a size find out. MPI errors come back as Errors. Where MPI_Init_thread gave less than
// MPI_THREAD_SERIALIZED, only the thread that made the transport may use it, and another is an
// Error. REQUIRES: MPI is initialised, and not finalised before the transport is gone.
#pragma once

#include <peal/comm/transport/transport.h>

#include <mpi.h>

#include <deque>
#include <thread>
#include <vector>

namespace peal::comm {

class MpiTransport : public Transport {
 public:
  static constexpr std::size_t largest_piece = std::size_t{1} << 30;  // bytes

  // Owns the communicator, which nobody else uses. `piece` is equal on all ranks.
  explicit MpiTransport(MPI_Comm communicator, std::size_t piece = largest_piece);
  // Over a duplicate of it: collective.
  static std::unique_ptr<MpiTransport> duplicate(MPI_Comm communicator, std::size_t piece);
  ~MpiTransport() override;
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  std::string_view name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int world() const override { return world_; }
  std::unique_ptr<Transport> subset(const std::vector<int>& ranks, std::uint64_t id) override;
  Ticket post(Channel channel, std::span<const Message> round) override;
  bool test(Ticket ticket) override;
  bool cancel(Ticket ticket) override;
  std::vector<Message> open(Ticket ticket) const override;
  // Its second piece could come from another rank than its first.
  std::size_t most_from_any() const override { return piece_ - 1; }
  bool has_native(const NativeCall& call) const override;
  Ticket start_native(const NativeCall& call) override;
  void abandon() override { abandoned_ = true; }  // freeing the communicator is collective

 private:
  struct Part {
    Message message;  // the whole
    std::size_t at, bytes;
  };
  struct Posted {
    std::vector<MPI_Request> requests;
    std::vector<Part> parts;           // one a request: what was expected of it
    std::vector<std::byte> input;      // of a native reduce_scatter in place
    std::vector<int> counts, offsets;  // of a native collective under way, which reads them
  };
  void check_thread() const;
  int tag_of(Channel channel) const;
  void check_arrival(const Posted& posted, int index, const MPI_Status& status) const;
  // A slot that is free, with its number.
  Ticket take_slot();
  Posted& at(Ticket ticket) { return slots_[static_cast<std::size_t>(ticket)]; }
  const Posted& at(Ticket ticket) const { return slots_[static_cast<std::size_t>(ticket)]; }
  void give_back(Ticket ticket);

  MPI_Comm communicator_ = MPI_COMM_NULL;
  std::size_t piece_;
  int rank_ = 0, world_ = 1, tag_limit_ = 32767;
  bool any_thread_ = false, abandoned_ = false;
  std::thread::id owner_;
  // A ticket is a slot's number. Slots are used again, and so is the memory of their lists.
  std::deque<Posted> slots_;
  std::vector<Ticket> free_slots_;
};

}  // namespace peal::comm
