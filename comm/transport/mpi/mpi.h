// SPDX-License-Identifier: Apache-2.0
// The MPI transport: point-to-point messages and native collectives over communicators of its own.
//
// The channel is the tag (tags.h); what users send goes over a communicator of its own, and never
// meets what collectives do. MPI counts are ints, so a message goes in whole pieces of 1 GiB (tests
// have smaller ones) and a last one that is smaller, if need be empty: then ranks that disagree on
// a size find out. MPI errors come back as Errors, those of post() from test(): what was posted
// before them is MPI's still.
//
// All that is under way is asked about together: where many tickets are tested in turn, the first
// asks MPI for all, and each finds its own answer. Where MPI_Init_thread gave less than
// MPI_THREAD_SERIALIZED, only the thread that made the transport may use it, and another is an
// Error. REQUIRES: MPI is initialised, and not finalised before the transport is gone.
#pragma once

#include <peal/comm/transport/mpi/communicator.h>
#include <peal/comm/transport/mpi/tags.h>
#include <peal/comm/transport/transport.h>

#include <mpi.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace peal::comm {

class MpiTransport : public Transport, private NativeCollectives {
 public:
  static constexpr std::size_t largest_piece = std::size_t{1} << 30;  // bytes

  // Nobody else uses the communicators, which have the same ranks. `piece` is equal on all.
  MpiTransport(MpiCommunicator collectives, MpiCommunicator messages, std::size_t piece,
               Patience patience);
  // Over duplicates of it: collective. `patience` is for this, and for making sub-groups.
  static std::unique_ptr<MpiTransport> duplicate(MPI_Comm communicator, std::size_t piece,
                                                 const Patience& patience);
  ~MpiTransport() override;
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  std::string_view name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int world() const override { return world_; }
  void check_thread() const override { threads_.check(); }
  bool travels_beside(bool several_nodes) const override {
    return several_nodes && threads_.several();
  }
  std::unique_ptr<Transport> subset(const std::vector<int>& ranks, std::uint64_t id) override;
  Ticket post(Channel channel, std::span<const Message> round) override;
  bool test(Ticket ticket) override;
  bool cancel(Ticket ticket) override;
  std::vector<Message> open(Ticket ticket) const override;
  // A message's second piece could come from another rank than its first.
  Limits limits() const override { return {.most_from_any = piece_ - 1}; }
  NativeCollectives* native() override { return this; }
  DeviceQueue* queue() override { return nullptr; }
  SymmetricMemory* memory() override { return nullptr; }
  void set_hopeless(std::function<void()> hopeless) override {
    patience_.hopeless = std::move(hopeless);
  }
  void abandon() override { abandoned_ = true; }  // freeing the communicators is collective
  MPI_Comm communicator() const { return collectives_.get(); }

 private:
  bool has(const NativeCall& call) const override;
  Ticket start(const NativeCall& call) override;
  bool scales(const NativeCall&) const override { return false; }

  // What a request moves: a piece of a message, or a native collective.
  struct Part {
    Ticket ticket;
    Message message;  // the whole; nothing for a native collective
    std::size_t at, bytes;
    bool native = false;
  };
  struct Posted {
    std::size_t first = 0, open = 0;       // its requests, those that are not done
    std::uint64_t layout = 0;              // where `first` is right
    std::uint64_t seen = 0;                // how often MPI had been asked when it was tested last
    bool fresh = true;                     // not tested yet
    std::string problem{};                 // what went wrong; the next to test it is told
    std::vector<std::byte> input{};        // of a native reduce_scatter in place
    std::vector<int> counts{}, offsets{};  // of a native collective under way, which reads them
  };
  Ticket take_slot(std::size_t requests);
  void give_back(Ticket ticket);
  void post_part(const Part& part, int tag, MPI_Comm communicator);
  MPI_Request request(const NativeCall& call, Posted& posted);
  void ask(std::size_t first, std::size_t count);
  void note(const Part& part, const MPI_Status& status);
  void drop_done(std::size_t first);
  void call_back(Ticket ticket);
  Posted& at(Ticket ticket) { return slots_[static_cast<std::size_t>(ticket)]; }

  MpiThreads threads_;
  MpiCommunicator collectives_, messages_;
  Tags tags_;
  std::size_t piece_;
  Patience patience_;
  int rank_ = 0, world_ = 1;
  bool abandoned_ = false, calls_back_ = true;
  // A ticket is a slot's number. Slots are used again, and so is the memory of their lists.
  std::string broken_;  // why a message was never posted
  std::deque<Posted> slots_;
  std::vector<Ticket> free_slots_;
  // All requests under way, in the order of posting, and what each is.
  std::vector<MPI_Request> requests_;
  std::vector<Part> parts_;
  std::uint64_t asked_ = 0;   // how often MPI was, about all of them
  std::uint64_t layout_ = 0;  // how often requests have changed places
  std::vector<int> indices_;  // ask()'s own, kept
  std::vector<MPI_Status> statuses_;
};

}  // namespace peal::comm
