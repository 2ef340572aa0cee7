// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/transport/mpi/device_aware.h>

#include <utility>

namespace peal::comm {

DeviceAwareTransport::DeviceAwareTransport(std::unique_ptr<Transport> below, Device device)
    : below_(std::move(below)),
      name_(concat("device-aware ", below_->name())),
      device_(device),
      stream_(Stream::create(device, true)) {}

// Here, on the thread of its owner, and not in abandon(), which the watchdog's thread may call.
DeviceAwareTransport::~DeviceAwareTransport() {
  if (abandoned_) below_->abandon();
}

std::unique_ptr<Transport> DeviceAwareTransport::subset(const std::vector<int>& ranks,
                                                        std::uint64_t id) {
  auto below = below_->subset(ranks, id);
  return below ? std::make_unique<DeviceAwareTransport>(std::move(below), device_) : nullptr;
}

Ticket DeviceAwareTransport::post(Channel channel, std::span<const Message> round) {
  Held& held = held_[next_];
  held.channel = channel;
  held.round.assign(round.begin(), round.end());
  held.ready.record(stream_);
  return next_++;
}

bool DeviceAwareTransport::test(Ticket ticket) {
  Held& held = held_.at(ticket);
  if (!held.below) {
    if (!held.ready.query()) return false;
    held.below = below_->post(held.channel, held.round);
  }
  if (!below_->test(*held.below)) return false;
  held_.erase(ticket);
  return true;
}

bool DeviceAwareTransport::cancel(Ticket ticket) {
  const auto found = held_.find(ticket);
  if (found == held_.end()) return true;
  const bool free = !found->second.below || below_->cancel(*found->second.below);
  held_.erase(found);
  return free;
}

std::vector<Message> DeviceAwareTransport::open(Ticket ticket) const {
  const Held& held = held_.at(ticket);
  return held.below ? below_->open(*held.below) : held.round;
}

}  // namespace peal::comm
