// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/schedule/segments.h>

#include <algorithm>

namespace peal::comm {

std::vector<Segment> segments(const Program& program, Buffer buffer, std::int64_t count,
                              std::int64_t size, std::optional<std::int64_t> in_place) {
  std::vector<Segment> all;
  if (count == 0) return all;
  const std::size_t rounds = program.rounds.size();
  const std::size_t end = rounds == 0 ? 0 : rounds - 1;
  if (rounds == 0) size = count;
  for (std::int64_t at = 0; at < count; at += size) {
    all.push_back({{at, std::min(size, count - at)}, rounds, 0});
  }
  // What others touch, this rank's program does not show.
  const bool shared = std::ranges::any_of(
      program.rounds, [](const Round& round) { return std::ranges::any_of(round, is_one_sided); });
  if (all.size() == 1 || shared) {
    for (Segment& segment : all) {
      segment.first = 0;
      segment.last = end;
    }
    return all;
  }
  const auto touch = [&](const Span& span, std::size_t round) {
    if (span.count == 0 || span.buffer >= Buffer::scratch) return;
    std::int64_t at = span.at;
    if (span.buffer != buffer) {
      if (!in_place) return;
      at += buffer == Buffer::in ? -*in_place : *in_place;
    }
    const std::int64_t begin = std::max<std::int64_t>(at, 0);
    const std::int64_t past = std::min(at + span.count, count);
    for (std::int64_t i = begin / size; i * size < past; ++i) {
      Segment& segment = all[static_cast<std::size_t>(i)];
      segment.first = std::min(segment.first, round);
      segment.last = std::max(segment.last, round);
    }
  };
  for (std::size_t round = 0; round < rounds; ++round) {
    for (const Step& step : program.rounds[round]) {
      touch(step.dst, round);
      touch(step.src, round);
    }
  }
  for (Segment& segment : all) {
    if (segment.first < rounds) continue;  // else nothing touches it
    segment.first = 0;
    segment.last = end;
  }
  return all;
}

}  // namespace peal::comm
