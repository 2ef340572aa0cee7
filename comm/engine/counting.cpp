// SPDX-License-Identifier: Apache-2.0
// What the engine counts beside what lanes count of their own.
#include <peal/comm/engine/engine.h>

namespace peal::comm {

void Engine::count(Lane& lane, const CollectiveCall& call) {
  const std::lock_guard lock(mutex_);
  const auto [kind, bytes] = counted(call, lane.transport().world());
  lane.counters().note_call(kind, bytes);
}

OperationCounters Engine::counters(const Lane& lane) {
  const std::lock_guard lock(mutex_);
  return lane.counters();
}

void Engine::note_wait(const Operation& operation, std::chrono::nanoseconds time) {
  const std::lock_guard lock(mutex_);
  Lane& lane = *operation.lane;
  const auto kind = counted(operation.execution.call(), lane.transport().world()).kind;
  lane.counters().note_wait(kind, time);
}

}  // namespace peal::comm
