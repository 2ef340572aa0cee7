// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/engine/lane.h>
#include <peal/comm/engine/operation.h>

#include <utility>

namespace peal::comm {
namespace {

void mix(std::uint64_t& hash, std::uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15ull;
  hash ^= hash >> 29;
}

}  // namespace

Operation::Operation(std::shared_ptr<Lane> its_lane, Call call, std::shared_ptr<const Plan> plan,
                     Transport& transport, Channel channel, std::size_t segment,
                     std::string_view label)
    : lane(std::move(its_lane)),
      channel(channel),
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

}  // namespace peal::comm
