// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/schedule/mix.h>
#include <peal/comm/simulate/round_shapes.h>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace peal::comm {
std::int32_t RoundShapes::shape(int rank, const Round& round) {
  round_.clear();
  std::uint64_t hash = 0;
  for (const Step& step : round) {
    std::int32_t distance = 0;
    if (step.peer != nobody) {
      if (step.peer < 0 || step.peer >= world_ || step.peer == rank) {
        throw std::invalid_argument("simulate: rank " + std::to_string(rank) + " names rank " +
                                    std::to_string(step.peer) + " as a peer, in a world of " +
                                    std::to_string(world_));
      }
      distance = step.peer > rank ? step.peer - rank : step.peer - rank + world_;
    }
    round_.push_back({std::max(step.dst.count, step.src.count), distance, step.kind});
    mix(hash, static_cast<std::uint64_t>(round_.back().count));
    mix(hash, static_cast<std::uint64_t>(distance) << 8 | static_cast<std::uint64_t>(step.kind));
  }
  const auto [begin, end] = known_shapes_.equal_range(hash);
  for (auto known = begin; known != end; ++known) {
    if (std::ranges::equal(moves_of(known->second), round_)) return known->second;
  }
  const auto fresh = static_cast<std::int32_t>(shapes_.size());
  shapes_.push_back({moves_.size(), round_.size()});
  moves_.insert(moves_.end(), round_.begin(), round_.end());
  known_shapes_.emplace(hash, fresh);
  return fresh;
}

int RoundShapes::plan(int rank, const Program& program) {
  std::vector<std::int32_t> shapes;
  shapes.reserve(program.rounds.size());
  std::uint64_t hash = 0;
  for (const Round& round : program.rounds) {
    shapes.push_back(shape(rank, round));
    mix(hash, static_cast<std::uint64_t>(shapes.back()));
  }
  const auto [begin, end] = known_plans_.equal_range(hash);
  for (auto known = begin; known != end; ++known) {
    if (plans_[static_cast<std::size_t>(known->second)] == shapes) return known->second;
  }
  const int fresh = static_cast<int>(plans_.size());
  plans_.push_back(std::move(shapes));
  known_plans_.emplace(hash, fresh);
  return fresh;
}

}  // namespace peal::comm
