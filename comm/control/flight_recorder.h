// SPDX-License-Identifier: Apache-2.0
// Flight recorder (PyTorch: TORCH_FR): the last operations that a rank has begun, and how far they
// came, always on. The rows lie in the board's memory, so the other ranks of the node can read
// those of one that was killed or that is stopped. A row is atomics alone, and one that is being
// written counts as none. What was over within its call costs some stores, and asks for the time
// every 32nd time. Thread safety: one thread at a time writes; any thread, of any rank, reads.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace peal::comm {

// An operation: its signature, and what it was, in words of the engine's.
struct Finished {
  std::uint64_t signature = 0;
  std::uint64_t call[2] = {};
};

enum class FlightState : std::uint8_t { under_way, done, failed };
constexpr std::string_view name(FlightState state) {
  constexpr std::string_view names[] = {"under way", "done", "failed"};
  return names[static_cast<std::size_t>(state)];
}

struct FlightRow {
  std::uint64_t number = 0;  // of this rank's, from 0
  std::uint64_t group = 0, sequence = 0;
  Finished what{};
  FlightState state = FlightState::under_way;
  // Nanoseconds of the steady clock. Of what was over within its call, and not asked about, 0 and
  // 0.
  std::int64_t begin = 0, end = 0;
  std::string label{};  // what the caller says that it is for; its beginning
};

struct CallPlace {
  std::uint64_t group, sequence;
};
// Whether a rank with these rows, which waits in a call, has come to that call of that group.
// Nothing where they do not say: because none is of the group, or because the rank has more under
// way, whose continuations may make calls, too.
std::optional<bool> has_begun(const std::vector<FlightRow>& rows, std::uint64_t group,
                              std::uint64_t sequence, const CallPlace& waits_in);

// All-zero bytes are one without rows.
class FlightRecorder {
 public:
  static constexpr std::uint64_t kept = 2048;
  static constexpr std::uint64_t labels_kept = 512;  // of the last rows

  // The row's number, for end().
  std::uint64_t begin(std::uint64_t group, std::uint64_t sequence, const Finished& what,
                      std::string_view label);
  // Does nothing for a row that is no longer kept.
  void end(std::uint64_t number, FlightState state);
  // Begun and done.
  void over(std::uint64_t group, std::uint64_t sequence, const Finished& what,
            std::string_view label = {}) {
    const std::uint64_t number = next_.load(std::memory_order_relaxed);
    if (!label.empty()) keep_label(number, label);
    const std::int64_t time = number % 32 == 0 ? now() : 0;
    write(number, group, sequence, what, time, time, FlightState::done);
  }
  // How many there were.
  std::uint64_t size() const { return next_.load(std::memory_order_acquire); }
  // Those that are kept, the oldest first.
  std::vector<FlightRow> read() const;

  static std::int64_t now();  // nanoseconds

 private:
  struct alignas(64) Place {
    std::atomic<std::uint64_t> stamp;  // its number and 1, times 4, and its state; 0: none
    std::atomic<std::uint64_t> group, sequence, signature, call[2];
    std::atomic<std::int64_t> begin, end;
  };
  struct alignas(64) Label {
    static constexpr std::size_t words = 8;
    std::atomic<std::uint64_t> number;  // and 1, of the row whose label this is
    std::atomic<std::uint64_t> word[words - 1];
  };
  static constexpr std::uint64_t stamp(std::uint64_t number, FlightState state) {
    return (number + 1) << 2 | static_cast<std::uint64_t>(state);
  }
  // Each store is released: what is seen of a new row is seen after the old one's stamp has gone.
  void write(std::uint64_t number, std::uint64_t group, std::uint64_t sequence,
             const Finished& what, std::int64_t begin, std::int64_t end, FlightState state) {
    Place& place = places_[number % kept];
    place.stamp.store(0, std::memory_order_relaxed);
    place.group.store(group, std::memory_order_release);
    place.sequence.store(sequence, std::memory_order_release);
    place.signature.store(what.signature, std::memory_order_release);
    place.call[0].store(what.call[0], std::memory_order_release);
    place.call[1].store(what.call[1], std::memory_order_release);
    place.begin.store(begin, std::memory_order_release);
    place.end.store(end, std::memory_order_release);
    place.stamp.store(stamp(number, state), std::memory_order_release);
    next_.store(number + 1, std::memory_order_release);
  }
  // Before its row is written: who sees the row sees its label whole.
  void keep_label(std::uint64_t number, std::string_view label);
  std::string label_of(std::uint64_t number) const;

  alignas(64) std::atomic<std::uint64_t> next_;
  std::array<Place, kept> places_;
  std::array<Label, labels_kept> labels_;
};

}  // namespace peal::comm
