// SPDX-License-Identifier: Apache-2.0
// Operation counters (performance counters; PyTorch: the counts of CommDebugMode): of each
// collective, and of messages, how many calls a rank has begun in a group, of how many bytes, how
// many of them have failed, and how long it has waited for them. Always on: a call costs two
// additions, where its group's lock is held anyway.
//
// Bytes are those of the larger side of a call on one rank: nccl-tests' size, and what ranges of
// PEAL_ALGO speak of. An all_gather counts all of its output, a reduce_scatter all of its input, an
// all_to_all a world's part of all counts; so they are equal on all ranks. They are not what
// travels, which is the algorithm's affair. A call on lists counts once for each type among them,
// objects and all_to_all_single as the collectives that they are made of, and monitored_barrier as
// messages. What a group calls for itself, to agree on something, counts as well: of a part of a
// program the difference of two states says more than either.
//
// Seconds are those within Work::wait() and synchronize(), from where the work is not done yet.
// What is over within its call (immediate.h) has none: nobody asks a clock there. Thread safety: a
// value.
#pragma once

#include <peal/comm/schedule/schedule.h>

#include <fmt/core.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>

namespace peal::comm {

struct OperationCounter {
  std::uint64_t calls = 0, bytes = 0;
  std::uint64_t failed = 0;  // of those calls
  std::chrono::nanoseconds waited{0};

  bool operator==(const OperationCounter&) const = default;
};

class OperationCounters {
 public:
  // What is counted apart: collectives, messages sent and received, and replays of graphs that have
  // captured collectives, which then count as that alone.
  enum class Kind : std::uint8_t {};
  static constexpr std::size_t kinds = std::size(all_collectives) + 3;
  static constexpr Kind kind(Collective what) { return Kind(what); }
  static constexpr Kind kind(Direction direction) {
    return Kind(std::size(all_collectives) + static_cast<std::size_t>(direction));
  }
  static constexpr Kind replay{kinds - 1};

  // What was counted for one kind: calls, bytes, failures, and the time that was waited.
  const OperationCounter& operator[](Collective what) const { return of(kind(what)); }
  const OperationCounter& operator[](Direction direction) const { return of(kind(direction)); }
  const OperationCounter& replays() const { return of(replay); }
  // What came after `before`, a state of the same group's.
  OperationCounters operator-(const OperationCounters& before) const;
  // A table of all that was called, a line each.
  std::string text() const;
  bool operator==(const OperationCounters&) const = default;

  // The engine's: one more call of so many bytes, one that failed, so long waited.
  void note_call(Kind kind, std::uint64_t bytes) {
    OperationCounter& counter = counters_[static_cast<std::size_t>(kind)];
    ++counter.calls;
    counter.bytes += bytes;
  }
  void note_failure(Kind kind) { ++counters_[static_cast<std::size_t>(kind)].failed; }
  void note_wait(Kind kind, std::chrono::nanoseconds time) {
    counters_[static_cast<std::size_t>(kind)].waited += time;
  }

 private:
  const OperationCounter& of(Kind kind) const { return counters_[static_cast<std::size_t>(kind)]; }

  std::array<OperationCounter, kinds> counters_{};
};

}  // namespace peal::comm

template <>
struct fmt::formatter<peal::comm::OperationCounters> {
  constexpr auto parse(format_parse_context& context) const { return context.begin(); }
  template <class Context>
  auto format(const peal::comm::OperationCounters& counters, Context& context) const {
    return fmt::format_to(context.out(), "{}", counters.text());
  }
};
