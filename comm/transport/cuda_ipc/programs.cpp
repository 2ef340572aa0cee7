// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/algorithms/in_strips.h>
#include <peal/comm/schedule/mix.h>
#include <peal/comm/transport/cuda_ipc/programs.h>

#include <algorithm>
#include <utility>

namespace peal::comm::ipc {
namespace {

// Enough blocks for so many bytes of each, and as many on all ranks.
int blocks_for(std::int64_t bytes, int most) {
  constexpr std::int64_t enough = std::int64_t{16} << 10;  // two loads a thread
  return static_cast<int>(std::clamp<std::int64_t>((bytes + enough - 1) / enough, 1, most));
}

}  // namespace

unsigned signature(const NativeCall& call) {
  std::uint64_t hash = 1;
  for (const auto word :
       {static_cast<std::uint64_t>(call.what), static_cast<std::uint64_t>(call.dtype),
        static_cast<std::uint64_t>(call.op), static_cast<std::uint64_t>(call.root)}) {
    mix(hash, word);
  }
  for (const std::int64_t count : call.counts) mix(hash, static_cast<std::uint64_t>(count));
  return static_cast<unsigned>(hash >> 48);
}

Programs::Programs(const Group& group, std::int64_t one_shot)
    : rank_(group.rank),
      world_(group.world),
      blocks_(group.blocks),
      half_(group.half),
      one_shot_(one_shot),
      last_(made_.end()) {}

const Ready& Programs::of(const NativeCall& call) {
  const std::size_t element = size_of(call.dtype);
  const auto is_for = [&](const Key& key) {
    return key.what == call.what && key.root == call.root && key.element == element &&
           std::ranges::equal(key.counts, call.counts);
  };
  if (last_ != made_.end() && is_for(last_->first)) return last_->second;
  Key key{call.what, call.root, element, {call.counts.begin(), call.counts.end()}};
  last_ = made_.find(key);
  if (last_ != made_.end()) return last_->second;
  constexpr std::size_t most = 512;  // ragged counts could otherwise fill the memory
  if (made_.size() >= most) made_.clear();
  Ready ready = make(key);
  last_ = made_.emplace(std::move(key), ready).first;
  return last_->second;
}

Ready Programs::make(const Key& key) const {
  const auto element = static_cast<std::int64_t>(key.element);
  const Topology nodes = single_node(world_);
  const Problem problem{.what = key.what,
                        .rank = rank_,
                        .world = world_,
                        .root = key.root,
                        .counts = key.counts,
                        .nodes = nodes};
  const std::int64_t longest =
      (key.counts.empty() ? 0 : std::ranges::max(key.counts)) * element;  // bytes
  const bool sliced = key.what == Collective::all_reduce && longest > one_shot_ && world_ > 1;
  const std::int64_t each = sliced ? (longest + world_ - 1) / world_ : longest;
  const Workers workers{blocks_for(each, blocks_), half_ / element, 16 / element};
  Ready ready{.program = {}, .blocks = workers.count, .asks = false};
  ready.asks = sliced || !fits_slots(problem, workers);
  ready.program =
      ready.asks ? slices_in_strips(problem, workers) : slots_in_strips(problem, workers);
  ready.in = in_count(problem);
  ready.out = out_count(problem);
  return ready;
}

}  // namespace peal::comm::ipc
