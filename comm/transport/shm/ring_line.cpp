// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/memory/shared_segment.h>
#include <peal/comm/transport/mail/mailroom.h>
#include <peal/comm/transport/shm/ring_line.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace peal::comm {
namespace {

// Of one ring: what many ranks have together stays small.
constexpr std::size_t largest_ring = std::size_t{64} << 10, smallest_ring = std::size_t{4} << 10,
                      rings_of_a_rank = std::size_t{512} << 10;

std::size_t ring_for(int world) {
  std::size_t ring = largest_ring;
  while (ring > smallest_ring && ring * static_cast<std::size_t>(world) > rings_of_a_rank) {
    ring /= 2;
  }
  return ring;
}

// Of whole lines of the cache.
std::size_t record_of(std::size_t content) {
  const std::size_t bytes = sizeof(Parcel) + content;
  return bytes + (64 - bytes % 64) % 64;
}

}  // namespace

std::vector<std::unique_ptr<Line>> ring_lines(Rendezvous& ranks, const std::vector<int>& who) {
  const int rank = ranks.rank(), world = ranks.world();
  const std::size_t ring = ring_for(world);
  const auto pairs = static_cast<std::size_t>(world) * static_cast<std::size_t>(world);
  const auto segment = SharedSegment::create(ranks, pairs * bytes_of_ring(ring), "messages");
  const auto at = [&](int from, int to) {
    return segment->data() + static_cast<std::size_t>(from * world + to) * bytes_of_ring(ring);
  };
  std::vector<std::unique_ptr<Line>> lines;
  for (int peer = 0; peer < world; ++peer) {
    const int there = who.empty() ? peer : who[static_cast<std::size_t>(peer)];
    lines.push_back(
        std::make_unique<RingLine>(there, segment, at(rank, peer), at(peer, rank), ring));
  }
  return lines;
}

std::unique_ptr<Line> ring_to_itself(int rank) {
  const std::size_t bytes = bytes_of_ring(largest_ring);
  const std::shared_ptr<void> memory(std::aligned_alloc(64, bytes), std::free);
  PEAL_CHECK(memory != nullptr, "[comm] rank ", rank, ": no memory for ", bytes, " bytes");
  std::memset(memory.get(), 0, bytes);
  auto* const ring = static_cast<std::byte*>(memory.get());
  return std::make_unique<RingLine>(rank, memory, ring, ring, largest_ring);
}

void RingLine::write_record(const Parcel& parcel, const std::byte* data) {
  constexpr std::byte nothing[64] = {};
  out_.write(&parcel, sizeof parcel);
  if (data != nullptr) out_.write(data, parcel.content());
  out_.write(nothing, record_of(parcel.content()) - sizeof parcel - parcel.content());
  out_.publish();
}

void RingLine::write(Mailroom& room) {
  while (!waiting_.empty()) {
    const auto [what, number] = waiting_.front();
    bool written = false;
    switch (what) {
      case Outgoing::What::message:
        written = write_message(room, number);
        break;
      case Outgoing::What::parts:
        written = write_parts(room, number);
        break;
      case Outgoing::What::answer: {
        const Parcel parcel{.number = number, .kind = Parcel::Kind::accept};
        written = out_.fits(record_of(0));
        if (written) write_record(parcel, nullptr);
      }
    }
    if (!written) return;
    waiting_.pop_front();
  }
}

bool RingLine::write_message(Mailroom& room, std::uint64_t number) {
  const auto found = sends_.find(number);
  if (found == sends_.end()) return true;  // given up
  const Send& send = found->second;
  Parcel parcel = parcel_of(send, number, Parcel::Kind::whole);
  const std::size_t record = record_of(parcel.content());
  const std::uint64_t unmet = sent_whole_ - out_.met();
  const bool whole = record <= size_ / 4 && unmet + record <= 4 * size_;
  if (!whole) parcel.kind = Parcel::Kind::offer;
  if (!out_.fits(record_of(parcel.content()))) return false;
  write_record(parcel, send.message.data);
  if (!whole) return true;
  sent_whole_ += record;
  room.finish(send.ticket);
  sends_.erase(found);
  return true;
}

// As much as there is room for; true where that was the last.
bool RingLine::write_parts(Mailroom& room, std::uint64_t number) {
  const auto found = sends_.find(number);
  if (found == sends_.end()) return true;  // given up
  Send& send = found->second;
  while (send.done < send.message.bytes) {
    const Parcel parcel{
        .number = number,
        .bytes = std::min(size_ / 4 - sizeof(Parcel), send.message.bytes - send.done),
        .kind = Parcel::Kind::part};
    if (!out_.fits(record_of(parcel.content()))) return false;
    write_record(parcel, send.message.data + send.done);
    send.done += parcel.content();
  }
  room.finish(send.ticket);
  sends_.erase(found);
  return true;
}

void RingLine::add_met(std::size_t bytes) { in_.add_met(record_of(bytes)); }

void RingLine::take_in(Mailroom& room) {
  while (in_.any()) {
    Parcel parcel;
    in_.read(&parcel, sizeof parcel);
    switch (parcel.kind) {
      case Parcel::Kind::whole:
      case Parcel::Kind::offer:
        in_.read(room.arrive(peer_, parcel), parcel.content());
        break;
      case Parcel::Kind::accept:
        waiting_.push_back({Outgoing::What::parts, parcel.number});
        break;
      case Parcel::Kind::part: {
        const auto found = accepted_.find(parcel.number);
        if (found == accepted_.end()) {  // given up
          in_.read(nullptr, parcel.content());
          break;
        }
        Receive& receive = found->second;
        in_.read(receive.message.data + receive.done, parcel.content());
        receive.done += parcel.content();
        if (receive.done < receive.message.bytes) break;
        room.finish(receive.ticket);
        accepted_.erase(found);
      }
    }
    in_.read(nullptr, record_of(parcel.content()) - sizeof parcel - parcel.content());
    in_.release();
  }
}

}  // namespace peal::comm
