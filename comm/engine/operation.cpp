// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/engine/branch.h>
#include <peal/comm/engine/lane.h>
#include <peal/comm/engine/operation.h>
#include <peal/comm/schedule/mix.h>

#include <algorithm>
#include <utility>

namespace peal::comm {

Operation::Operation(std::shared_ptr<Lane> its_lane, Call call, std::shared_ptr<const Plan> plan,
                     Transport& transport, Channel channel, std::size_t segment,
                     std::string_view label)
    : lane(std::move(its_lane)),
      channel(channel),
      in_turn(!call.point_to_point() && Branch::current() == nullptr),
      label(label),
      execution(std::move(call), std::move(plan), transport, channel, lane->copies(), segment) {}

std::uint64_t signature(const Call& call) {
  std::uint64_t hash = 1;
  mix(hash, static_cast<std::uint64_t>(call.dtype()));
  if (call.point_to_point()) return hash;  // sizes are compared when the message comes
  mix(hash, static_cast<std::uint64_t>(call.what));
  mix(hash, static_cast<std::uint64_t>(call.op));
  mix(hash, static_cast<std::uint64_t>(call.root));
  mix(hash, call.purpose);
  for (const std::int64_t count : call.counts) mix(hash, static_cast<std::uint64_t>(count));
  for (const Piece& piece : call.gathered) mix(hash, static_cast<std::uint64_t>(piece.data.count));
  return hash;
}

std::string describe(const Operation& operation) {
  return describe(operation.execution.call(), operation.channel.sequence, operation.label);
}

Finished finished(const Operation& operation) {
  const Call& call = operation.execution.call();
  std::int64_t count = call.counts.empty() ? std::max(call.in.count, call.out.count) : 0;
  for (const std::int64_t part : call.counts) count += part;
  const bool replay = call.replayed > 0;
  const auto word = [](auto value) { return static_cast<std::uint64_t>(value); };
  return {operation.channel.signature,
          {word(call.what) | word(call.op) << 8 | word(call.dtype()) << 16 | word(replay) << 24 |
               word(static_cast<std::uint32_t>(call.root)) << 32,
           word(replay ? static_cast<std::int64_t>(call.replayed) : count)}};
}

std::string describe(const Finished& what, std::uint64_t sequence) {
  const std::uint64_t word = what.call[0];
  if ((word >> 24 & 0xff) != 0) {
    return concat("replay #", sequence, " of a graph with ", what.call[1], " collectives");
  }
  const Call call{.what = static_cast<Collective>(word & 0xff),
                  .in = {.dtype = static_cast<DType>(word >> 16 & 0xff)},
                  .op = static_cast<ReduceOp>(word >> 8 & 0xff),
                  .root = static_cast<int>(word >> 32),
                  .counts = {static_cast<std::int64_t>(what.call[1])}};
  return describe(call, sequence, {});
}

}  // namespace peal::comm
