// SPDX-License-Identifier: Apache-2.0
// Ring: a queue of bytes in memory that two processes share, of which one writes and one reads
// (Lamport's single-producer, single-consumer queue). Two counts, which only grow, say how much was
// written and read; each has one writer. What is written is seen when it is published, a record at
// once. Memory of zeros is an empty ring. Thread safety: one thread at each end.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace peal::comm {

struct RingCounts {
  alignas(64) std::atomic<std::uint64_t> written;
  // The reader's: bytes that the writer may use again, and bytes of whole messages that have met
  // their receivers (mailroom.h).
  alignas(64) std::atomic<std::uint64_t> read;
  std::atomic<std::uint64_t> met;
};

// Of a ring of so many bytes, a power of two, behind its counts.
constexpr std::size_t bytes_of_ring(std::size_t size) { return sizeof(RingCounts) + size; }

class RingWriter {
 public:
  RingWriter(std::byte* memory, std::size_t size)
      : counts_(reinterpret_cast<RingCounts*>(memory)),
        bytes_(memory + sizeof(RingCounts)),
        size_(size) {}

  bool fits(std::size_t bytes) {
    if (written_ + bytes - read_ <= size_) return true;
    read_ = counts_->read.load(std::memory_order_acquire);
    return written_ + bytes - read_ <= size_;
  }
  // REQUIRES: it fits, with all that is not published.
  void write(const void* data, std::size_t bytes) {
    const std::size_t at = written_ & (size_ - 1), first = std::min(bytes, size_ - at);
    const auto* from = static_cast<const std::byte*>(data);
    if (first > 0) std::memcpy(bytes_ + at, from, first);
    if (bytes > first) std::memcpy(bytes_, from + first, bytes - first);
    written_ += bytes;
  }
  void publish() { counts_->written.store(written_, std::memory_order_release); }
  std::uint64_t met() const { return counts_->met.load(std::memory_order_relaxed); }

 private:
  RingCounts* counts_;
  std::byte* bytes_;
  std::size_t size_;
  std::uint64_t written_ = 0, read_ = 0;  // as it was seen last
};

class RingReader {
 public:
  RingReader(std::byte* memory, std::size_t size)
      : counts_(reinterpret_cast<RingCounts*>(memory)),
        bytes_(memory + sizeof(RingCounts)),
        size_(size) {}

  // There is a record.
  bool any() {
    if (written_ == read_) written_ = counts_->written.load(std::memory_order_acquire);
    return written_ != read_;
  }
  // REQUIRES: of a record that is there. To nowhere it is skipped.
  void read(void* data, std::size_t bytes) {
    const std::size_t at = read_ & (size_ - 1), first = std::min(bytes, size_ - at);
    auto* const to = static_cast<std::byte*>(data);
    if (to != nullptr && first > 0) std::memcpy(to, bytes_ + at, first);
    if (to != nullptr && bytes > first) std::memcpy(to + first, bytes_, bytes - first);
    read_ += bytes;
  }
  // Its bytes may be written again.
  void release() { counts_->read.store(read_, std::memory_order_release); }
  void add_met(std::size_t bytes) { counts_->met.store(met_ += bytes, std::memory_order_relaxed); }

 private:
  RingCounts* counts_;
  std::byte* bytes_;
  std::size_t size_;
  std::uint64_t read_ = 0, written_ = 0;  // as it was seen last
  std::uint64_t met_ = 0;
};

}  // namespace peal::comm
