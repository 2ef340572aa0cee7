// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/engine/staging.h>

#include <algorithm>

namespace peal::comm {

void CallerOrder::follow(Device device) {
  if (device.type == DeviceType::cpu) return;
  for (const auto& [known, event] : before_) {
    if (known == device) return;
  }
  before_.emplace_back(device, Event());
  before_.back().second.record(current_stream(device));
}

void CallerOrder::stay(const Stream& stream) {
  before_.emplace_back(stream.device(), Event());
  stays_ = stream;
}

void CallerOrder::enter(const Stream& stream) const {
  for (const auto& [device, event] : before_) stream.wait(event);
}

void CallerOrder::leave(const Stream& stream) {
  after_.emplace_back();
  after_.back().record(stream);
}

bool CallerOrder::may_begin() const {
  return std::all_of(before_.begin(), before_.end(),
                     [](const auto& place) { return place.second.query(); });
}

bool CallerOrder::is_over() const {
  return std::all_of(after_.begin(), after_.end(), [](const Event& e) { return e.query(); });
}

void CallerOrder::order() const {
  for (const auto& [device, before] : before_) {
    const Stream stream = current_stream(device);
    if (stays_ == stream) continue;
    for (const Event& event : after_) stream.wait(event);
  }
}

const CopyStreams::Pair& CopyStreams::of(Device device) {
  for (const auto& [known, pair] : pairs_) {
    if (known == device) return pair;
  }
  pairs_.emplace_back(device, Pair{Stream::create(device, true), Stream::create(device, true)});
  return pairs_.back().second;
}

Staging::Used& Staging::use(Device device) {
  for (Used& used : used_) {
    if (used.device == device) return used;
  }
  used_.push_back({.device = device});
  return used_.back();
}

void Staging::down(std::byte* to, const View& from) {
  if (from.count == 0) return;
  const Device device = from.device();
  const Stream& stream = streams_.of(device).down;
  Used& used = use(device);
  if (!used.down) caller_.enter(stream);
  used.down = true;
  const StreamGuard guard(stream);
  memory_space(device).copy(to, Device{}, from.data(), device, from.bytes(), false);
}

void Staging::up(const View& to, const std::byte* from) {
  if (to.count == 0) return;
  const Device device = to.device();
  const Stream& stream = streams_.of(device).up;
  Used& used = use(device);
  if (!used.up) caller_.enter(stream);
  used.up = true;
  const StreamGuard guard(stream);
  memory_space(device).copy(to.data(), device, from, Device{}, to.bytes(), false);
}

std::size_t Staging::mark() {
  for (const Used& used : used_) {
    if (!used.down) continue;
    marks_.emplace_back();
    marks_.back().record(streams_.of(used.device).down);
  }
  return marks_.size();
}

bool Staging::arrived(std::size_t mark) {
  while (reached_ < mark && marks_[reached_].query()) ++reached_;
  return reached_ >= mark;
}

void Staging::close(CallerOrder& caller) const {
  for (const Used& used : used_) {
    if (used.up) caller.leave(streams_.of(used.device).up);
  }
}

bool Staging::quiet() const {
  return std::all_of(used_.begin(), used_.end(), [&](const Used& used) {
    const CopyStreams::Pair& pair = streams_.of(used.device);
    return (!used.down || pair.down.query()) && (!used.up || pair.up.query());
  });
}

}  // namespace peal::comm
