// SPDX-License-Identifier: Apache-2.0
// Trace: who spent how long on what. A Span measures its own lifetime under (name, phase) into the
// context's Trace; without one it costs a null check. Times are inclusive of nested spans.
// Thread safety: a Trace may be fed from several threads.
#pragma once

#include <peal/autograd/core/context.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace peal {

class Trace {
 public:
  struct Total {
    std::int64_t calls = 0;
    double seconds = 0;
  };
  struct Row {
    std::string name;
    Total forward, backward;
  };

  void add(std::string_view name, bool backward, double seconds);
  // Totals by name, longest first.
  std::vector<Row> rows() const;
  // A table with one line a name: calls, forward ms, backward ms, each divided by `steps`.
  std::string table(std::int64_t steps) const;
  void clear();

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Row, std::less<>> rows_;
};

class TraceSpan {
 public:
  explicit TraceSpan(std::string_view name, bool backward = false)
      : trace_(context().trace.get()), name_(name), backward_(backward) {
    if (trace_) start_ = std::chrono::steady_clock::now();
  }
  ~TraceSpan() {
    if (!trace_) return;
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start_;
    trace_->add(name_, backward_, spent.count());
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  Trace* trace_;
  std::string_view name_;
  bool backward_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace peal
