// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/record/operation_counters.h>

#include <string_view>

namespace peal::comm {
namespace {

std::string_view name_of(std::size_t kind) {
  constexpr std::string_view others[] = {"send", "recv", "replay"};
  const std::size_t collectives = std::size(all_collectives);
  return kind < collectives ? name(static_cast<Collective>(kind)) : others[kind - collectives];
}

}  // namespace

OperationCounters OperationCounters::operator-(const OperationCounters& before) const {
  OperationCounters after = *this;
  for (std::size_t i = 0; i < kinds; ++i) {
    OperationCounter& counter = after.counters_[i];
    counter.calls -= before.counters_[i].calls;
    counter.bytes -= before.counters_[i].bytes;
    counter.failed -= before.counters_[i].failed;
    counter.waited -= before.counters_[i].waited;
  }
  return after;
}

std::string OperationCounters::text() const {
  std::string all = fmt::format("{:<14}  {:>10}  {:>16}  {:>8}  {:>12}\n", "operation", "calls",
                                "bytes", "failed", "waited s");
  for (std::size_t i = 0; i < kinds; ++i) {
    const OperationCounter& counter = counters_[i];
    if (counter == OperationCounter()) continue;
    const std::chrono::duration<double> waited = counter.waited;
    all += fmt::format("{:<14}  {:>10}  {:>16}  {:>8}  {:>12.6f}\n", name_of(i), counter.calls,
                       counter.bytes, counter.failed, waited.count());
  }
  return all;
}

}  // namespace peal::comm
