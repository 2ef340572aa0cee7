// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/transport/threads/network.h>

#include <algorithm>
#include <utility>

namespace peal::comm {
namespace {

std::chrono::nanoseconds seconds(double value) {
  constexpr double most = 1e9;  // a rate of almost nothing; beyond, the clock would overflow
  return std::chrono::nanoseconds(static_cast<std::int64_t>(std::min(value, most) * 1e9));
}

}  // namespace

Network::Network(Wire wire, int world)
    : wire_(std::move(wire)),
      world_(static_cast<std::size_t>(world)),
      links_(world_ * world_),
      ports_(world_) {
  check(wire_, world);
}

Network::Clock::time_point Network::send(Transfer transfer) {
  const auto now = Clock::now();
  std::lock_guard lock(mutex_);
  const auto from = static_cast<std::size_t>(transfer.from);
  Line& link = links_[from * world_ + static_cast<std::size_t>(transfer.to)];
  Line& port = ports_[from];
  transfer.on_link = link.passed++;
  const Fate fate = comm::fate(wire_, transfer);
  if (fate.dropped) return never;
  const auto leaves = std::max({now, link.free, port.free});
  link.free = leaves + seconds(fate.link);
  port.free = leaves + seconds(fate.port);
  return std::max(link.free, port.free) + seconds(fate.late);
}

}  // namespace peal::comm
