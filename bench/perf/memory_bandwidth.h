// SPDX-License-Identifier: Apache-2.0
// Memory bandwidth: what the node's memory passes when all of its ranks update an array of their
// own at once, in place: the ceiling that the columns' eff% refers to. Beyond the caches it is the
// memory's, below them theirs. A copy would not do: its two arrays fill the caches sooner than a
// collective in place, and lines are loaded before they are stored. Thread safety: one thread.
#pragma once

#include <peal/comm/group/process_group.h>

#include <cstdint>
#include <map>
#include <optional>

namespace peal::bench {

class MemoryBandwidth {
 public:
  explicit MemoryBandwidth(const comm::ProcessGroup& group) : group_(group) {}
  // Bytes loaded and stored a second, by all ranks of the world on arrays of so many bytes. Nothing
  // where they are on several nodes, or for no bytes. Collective.
  std::optional<double> of(std::int64_t bytes);

 private:
  const comm::ProcessGroup& group_;
  std::map<std::int64_t, double> measured_;
};

}  // namespace peal::bench
