// SPDX-License-Identifier: Apache-2.0
// Addresses of spans: where the buffers of one run of a program lie (schedule.h), the rank's own
// and those that ranks share. Thread safety: one thread at a time (the engine's lock).
#pragma once

#include <peal/comm/memory/window.h>
#include <peal/comm/schedule/plan.h>
#include <peal/comm/schedule/schedule.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace peal::comm {

class Spans {
 public:
  // `window`: the group's, null where it has none. `element`: bytes.
  Spans(const Window* window, int rank, std::size_t element)
      : window_(window), rank_(rank), element_(static_cast<std::int64_t>(element)) {}

  // The rank's own.
  void set(Buffer buffer, std::byte* begin) { own_[static_cast<std::size_t>(buffer)] = begin; }
  std::byte* whole(Buffer buffer) const { return own_[static_cast<std::size_t>(buffer)]; }
  // Where a span lies. Null for one without elements, whose buffer may not be there. Error for one
  // out of this rank's reach.
  std::byte* at(const Span& span) const {
    if (span.count == 0) return nullptr;
    std::byte* const begin = is_shared(span) ? reach(span) : whole(span.buffer);
    return begin + span.at * element_;
  }
  std::size_t bytes(std::int64_t elements) const {
    return static_cast<std::size_t>(elements * element_);
  }

 private:
  std::byte* reach(const Span& span) const {
    const int owner = span.owner == self ? rank_ : span.owner;
    std::byte* const found = window_ == nullptr ? nullptr : window_->reach(owner, span.buffer);
    if (found == nullptr) [[unlikely]]
      fail_out_of_reach(span);
    return found;
  }
  [[noreturn]] void fail_out_of_reach(const Span& span) const;

  const Window* window_;
  int rank_;
  std::int64_t element_;
  std::byte* own_[buffer_kinds] = {};
};

// A combination's targets and sources, of one run. Kept from run to run for its memory.
struct CombinedMemory {
  std::vector<std::byte*> targets;
  std::vector<const std::byte*> sources;

  void find(const Plan::Combination& all, const Spans& spans) {
    targets.clear();
    sources.clear();
    for (const Span& span : all.targets) targets.push_back(spans.at(span));
    for (const Span& span : all.sources) sources.push_back(spans.at(span));
  }
};

}  // namespace peal::comm
