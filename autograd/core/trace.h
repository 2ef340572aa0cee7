// SPDX-License-Identifier: Apache-2.0
// Trace: who spent how long on what, and what was computed meanwhile. A TraceSpan measures its own
// lifetime into the context's Trace; kernels add their cost, floating-point operations and bytes,
// to the span that they run in. Without a Trace a span costs a null check, and names the op that
// runs.
//
// Invariant: rows() counts a span inside another to the outer one, so that what is called in a
// backward is that backward's, and the rows of one thread add up to no more than the time passed.
// A Trace made with room for events keeps every span as well, inner ones too, for a picture: json()
// is the format that ui.perfetto.dev and chrome://tracing show.
//
// A Trace of a CUDA device times spans there, between events on the current stream, as the host
// only queues what it is asked for: rows() has the device's times, json() both, and each span is a
// range of NVTX too, for Nsight Systems. Spans are read when rows() or json() is called, which
// waits. Thread safety: a Trace may be fed from several threads.
#pragma once

#include <peal/autograd/core/context.h>
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/core/stream.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace peal {

// What a computation takes at least: multiplications and additions, and bytes of its operands, each
// read or written once. Of the flops some are of products of f16 or bf16, for which machines have
// units of their own.
struct OpCost {
  double flops = 0, bytes = 0, low_flops = 0;
  OpCost& operator+=(const OpCost& other) {
    flops += other.flops;
    bytes += other.bytes;
    low_flops += other.low_flops;
    return *this;
  }
  bool operator==(const OpCost&) const = default;
};

class Trace {
 public:
  using Clock = std::chrono::steady_clock;
  struct Total {
    std::int64_t calls = 0;
    double seconds = 0;
    OpCost cost;
  };
  struct Row {
    std::string name;
    Total forward, backward;
    double seconds() const { return forward.seconds + backward.seconds; }
  };

  static constexpr std::size_t picture_events =
      200'000;  // some 20 MB, and as much as a viewer likes

  // `most_events`: how many spans are kept for json(); what comes after is counted only.
  explicit Trace(std::size_t most_events = 0, Device device = {});
  Device device() const { return device_; }

  // Totals by name, longest first.
  std::vector<Row> rows() const;
  // Those that are kept, of one thread, by the host's clock, in order of their ends.
  struct Span {
    std::string_view name;  // as long as the Trace lives
    bool backward, outermost;
    Clock::time_point begin;
    double seconds;
  };
  std::vector<Span> spans(std::thread::id thread) const;
  // Times in microseconds from the Trace's start; beside the spans, the bytes of tensors.
  std::string json(std::string_view process) const;

 private:
  friend class TraceSpan;
  // A span's begin and end on the device.
  struct Marks {
    peal::Event begin{true}, end{true};
  };
  struct Event {
    std::string_view name;  // in names_
    bool backward;
    std::thread::id thread;
    Clock::time_point start;
    double seconds;
    OpCost cost;
    std::size_t tensor_bytes;
    double device_start = 0, device_seconds = 0;  // since the Trace's start
    bool outermost = false;
  };
  struct Unread {
    Event event;
    bool outermost;
    std::unique_ptr<Marks> marks;
  };
  void add(Event event, bool outermost, std::unique_ptr<Marks> marks);
  void count(Event event, bool outermost) const;
  void read_marks() const;

  const std::size_t most_events_;
  const Device device_;
  peal::Event origin_{true};  // on the device, at start_
  Clock::time_point start_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, Row, std::less<>> rows_;
  mutable std::set<std::string, std::less<>> names_;
  mutable std::vector<Event> events_;
  mutable std::vector<Unread> unread_;  // of a device: their times are not known yet
  mutable std::size_t dropped_ = 0;
};

class TraceSpan : public OpName {
 public:
  explicit TraceSpan(std::string_view name, bool backward = false)
      : OpName(name), trace_(context().trace.get()), backward_(backward) {
    if (trace_) begin();
  }
  ~TraceSpan() {
    if (trace_) end();
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

  // Whether this thread is in a span that records, and adding to it. REQUIRES of add: recording.
  static bool recording() { return innermost_ != nullptr; }
  static void add(const OpCost& cost) { innermost_->cost_ += cost; }

 private:
  void begin();
  void end();

  static inline thread_local constinit TraceSpan* innermost_ = nullptr;
  Trace* trace_;
  TraceSpan* outer_ = nullptr;
  bool backward_;
  OpCost cost_;
  Trace::Clock::time_point start_;
  std::unique_ptr<Trace::Marks> marks_;  // on a device
};

}  // namespace peal
