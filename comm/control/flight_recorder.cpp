// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/control/flight_recorder.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace peal::comm {

static_assert(std::atomic<std::int64_t>::is_always_lock_free);

// Numbers of messages and of collectives lie apart: those of messages have the highest bit.
std::optional<bool> has_begun(const std::vector<FlightRow>& rows, std::uint64_t group,
                              std::uint64_t sequence, const CallPlace& waits_in) {
  std::optional<bool> begun;
  for (const FlightRow& row : rows) {
    const bool waited = row.group == waits_in.group && row.sequence == waits_in.sequence;
    if (row.state == FlightState::under_way && !waited) return std::nullopt;
    if (row.group != group || row.sequence >> 63 != sequence >> 63) continue;
    begun = begun.value_or(false) || row.sequence >= sequence;
  }
  return begun;
}

std::int64_t FlightRecorder::now() {
  using std::chrono::steady_clock;
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             steady_clock::now().time_since_epoch())
      .count();
}

void FlightRecorder::keep_label(std::uint64_t number, std::string_view label) {
  std::uint64_t words[Label::words - 1] = {};
  std::size_t bytes = std::min(label.size(), sizeof words);
  // No letter of UTF-8, of four bytes at most, is cut in two.
  const auto cuts = [&](std::size_t at) {
    return at < label.size() && (static_cast<unsigned char>(label[at]) & 0xc0) == 0x80;
  };
  for (int i = 0; i < 3 && cuts(bytes); ++i) --bytes;
  std::memcpy(words, label.data(), bytes);
  Label& place = labels_[number % labels_kept];
  place.number.store(0, std::memory_order_relaxed);
  for (std::size_t i = 0; i < std::size(words); ++i) {
    place.word[i].store(words[i], std::memory_order_release);
  }
  place.number.store(number + 1, std::memory_order_release);
}

std::uint64_t FlightRecorder::begin(std::uint64_t group, std::uint64_t sequence,
                                    const Finished& what, std::string_view label) {
  const std::uint64_t number = next_.load(std::memory_order_relaxed);
  if (!label.empty()) keep_label(number, label);
  write(number, group, sequence, what, now(), 0, FlightState::under_way);
  return number;
}

void FlightRecorder::end(std::uint64_t number, FlightState state) {
  Place& place = places_[number % kept];
  if (place.stamp.load(std::memory_order_relaxed) >> 2 != number + 1) return;
  place.end.store(now(), std::memory_order_release);
  place.stamp.store(stamp(number, state), std::memory_order_release);
}

std::string FlightRecorder::label_of(std::uint64_t number) const {
  const Label& place = labels_[number % labels_kept];
  if (place.number.load(std::memory_order_acquire) != number + 1) return {};
  char text[sizeof(std::uint64_t) * (Label::words - 1) + 1] = {};
  for (std::size_t i = 0; i + 1 < Label::words; ++i) {
    const std::uint64_t word = place.word[i].load(std::memory_order_acquire);
    std::memcpy(text + i * sizeof word, &word, sizeof word);
  }
  if (place.number.load(std::memory_order_relaxed) != number + 1) return {};
  return text;
}

std::vector<FlightRow> FlightRecorder::read() const {
  const auto read_one = [&](std::uint64_t number) -> std::optional<FlightRow> {
    const Place& place = places_[number % kept];
    const std::uint64_t before = place.stamp.load(std::memory_order_acquire);
    if (before >> 2 != number + 1) return std::nullopt;
    FlightRow row;
    row.number = number;
    row.group = place.group.load(std::memory_order_acquire);
    row.sequence = place.sequence.load(std::memory_order_acquire);
    row.what.signature = place.signature.load(std::memory_order_acquire);
    row.what.call[0] = place.call[0].load(std::memory_order_acquire);
    row.what.call[1] = place.call[1].load(std::memory_order_acquire);
    row.begin = place.begin.load(std::memory_order_acquire);
    row.end = place.end.load(std::memory_order_acquire);
    row.label = label_of(number);
    const std::uint64_t after = place.stamp.load(std::memory_order_relaxed);
    if (after >> 2 != number + 1) return std::nullopt;
    row.state = static_cast<FlightState>(after & 3);
    if (row.state == FlightState::under_way) row.end = 0;
    return row;
  };
  std::vector<FlightRow> rows;
  const std::uint64_t end = size();
  for (std::uint64_t number = end > kept ? end - kept : 0; number < end; ++number) {
    if (auto row = read_one(number)) rows.push_back(std::move(*row));
  }
  return rows;
}

}  // namespace peal::comm
