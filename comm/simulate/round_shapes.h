// SPDX-License-Identifier: Apache-2.0
#pragma once

// The programs of a large world in little memory: what matters for time alone, and equal things
// once. A move is a step without its addresses, with the peer as a distance round the circle of
// ranks; a shape is a round of moves; a plan is a program as a list of shapes. The ranks of a ring
// all have the same plan, or the same few shapes in different orders.

#include <peal/comm/schedule/schedule.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace peal::comm {

struct Move {
  std::int64_t count;
  std::int32_t distance;  // peer - rank, in 0 .. world-1; 0 for local steps
  Kind kind;
  bool operator==(const Move&) const = default;
};

class RoundShapes {
 public:
  explicit RoundShapes(int world) : world_(world) {}

  // The number of the program's plan. Throws std::invalid_argument for a peer that does not exist.
  int plan(int rank, const Program& program);

  std::span<const std::int32_t> shapes_of(int plan) const { return plans_[std::size_t(plan)]; }
  std::span<const Move> moves_of(std::int32_t shape) const {
    const Shape& s = shapes_[static_cast<std::size_t>(shape)];
    return std::span(moves_).subspan(s.first, s.size);
  }

 private:
  struct Shape {
    std::size_t first, size;  // in moves_
  };
  std::int32_t shape(int rank, const Round& round);

  int world_;
  std::vector<Move> moves_, round_;  // round_: the one being looked up
  std::vector<Shape> shapes_;
  std::vector<std::vector<std::int32_t>> plans_;
  std::unordered_multimap<std::uint64_t, std::int32_t> known_shapes_;  // by hash
  std::unordered_multimap<std::uint64_t, int> known_plans_;
};

}  // namespace peal::comm
