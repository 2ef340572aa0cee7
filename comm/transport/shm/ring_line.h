// SPDX-License-Identifier: Apache-2.0
// Lines over rings (ring.h) in memory that the ranks of a node share: for each ordered pair of them
// there is one. What is copied in is published with its envelope, a record at once.
// Thread safety: as Line.
#pragma once

#include <peal/comm/store/rendezvous.h>
#include <peal/comm/transport/mail/line.h>
#include <peal/comm/transport/shm/ring.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace peal::comm {

class RingLine : public Line {
 public:
  // To and from that rank; `memory` is where both rings lie, of `size` bytes each.
  RingLine(int peer, std::shared_ptr<void> memory, std::byte* out, std::byte* in, std::size_t size)
      : peer_(peer), memory_(std::move(memory)), size_(size), out_(out, size), in_(in, size) {}

  void take_in(Mailroom& room) override;
  void write(Mailroom& room) override;
  void add_met(std::size_t bytes) override;

 private:
  void write_record(const Parcel& parcel, const std::byte* data);
  bool write_message(Mailroom& room, std::uint64_t number);
  bool write_parts(Mailroom& room, std::uint64_t number);

  int peer_;
  std::shared_ptr<void> memory_;
  std::size_t size_;
  RingWriter out_;
  RingReader in_;
  std::uint64_t sent_whole_ = 0;  // bytes of records
};

// By rank, to itself too. Collective over ranks of one node, which are `who` in the mailroom;
// empty: the same there. Error on all ranks, NoSharedMemory, where there is none.
std::vector<std::unique_ptr<Line>> ring_lines(Rendezvous& ranks, const std::vector<int>& who = {});
// What a rank sends itself, in memory of its own.
std::unique_ptr<Line> ring_to_itself(int rank);

}  // namespace peal::comm
