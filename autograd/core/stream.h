// SPDX-License-Identifier: Apache-2.0
// Streams and events: the order of work on a device, without seeing CUDA. A stream is a queue: what
// is put into it runs in that order, while the host goes on. An event marks a place in a queue;
// another queue, or the host, can wait until that place is reached. On the CPU work is done when
// the call returns, so there a stream and an event do nothing.
//
// Ops run on the current stream: the context's (StreamGuard), else the device's own, which all
// threads share, so a tensor made by one thread may be used by another. Memory belongs to the
// stream that was current when it was allocated, and may be used on another only (1) after an event
// of the first is waited for there, and (2) until it is released, or Tensor::record_stream() says
// so. Thread safety: handles, as of a shared_ptr; any thread may use a stream.
#pragma once

#include <peal/autograd/core/device.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace peal {

class Event;

class Stream {
 public:
  Stream() = default;  // the CPU's
  // A stream of its own. Error where the build or the machine has no such device.
  static Stream create(Device device, bool high_priority = false);

  Device device() const { return device_; }
  void* native() const { return handle_.get(); }  // cudaStream_t; null on the CPU
  // Waits until all that was put into it is done. Errors of that work are thrown here.
  void synchronize() const;
  // True when nothing is left to do.
  bool query() const;
  // What is put into it from now on waits for the event; the host does not.
  void wait(const Event& event) const;
  bool operator==(const Stream& other) const { return handle_ == other.handle_; }

 private:
  friend Stream current_stream(Device device);
  Stream(Device device, std::shared_ptr<void> handle)
      : device_(device), handle_(std::move(handle)) {}

  Device device_;
  std::shared_ptr<void> handle_;
};

class Event {
 public:
  // `timed` events can be subtracted; the others cost less.
  explicit Event(bool timed = false) : timed_(timed) {}
  // Marks the stream's end as it is now; may be recorded again.
  void record(const Stream& stream);
  // True once the place is reached; also where nothing was recorded.
  bool query() const;
  // The host waits for it.
  void synchronize() const;
  // Time on the device between two timed events, both reached.
  double seconds_since(const Event& start) const;

 private:
  friend class Stream;
  bool timed_;
  Device device_;
  std::shared_ptr<void> handle_;  // null: nothing recorded, or on the CPU
};

// Where ops on `device` are put by this thread.
Stream current_stream(Device device);
// Waits for all streams of the device, but for those that other threads capture.
void synchronize(Device device);

// While one of these lives, ops on the stream's device go to it. It orders nothing by itself.
class StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  std::shared_ptr<const Stream> before_;
};

// Page-locked memory of the CPU, cached; null where the machine has no device (Tensor::pinned).
std::shared_ptr<void> allocate_pinned(std::size_t bytes);

// What a library that brings a device can do with queues; native handles as void*.
struct StreamSpace {
  std::shared_ptr<void> (*create)(Device, bool high_priority);
  std::shared_ptr<void> (*own)(Device);  // the one that all threads share
  void (*synchronize)(Device, void* stream);
  bool (*query)(Device, void* stream);
  void (*wait)(Device, void* stream, void* event);
  std::shared_ptr<void> (*create_event)(Device, bool timed);
  void (*record)(Device, void* event, void* stream);
  bool (*reached)(Device, void* event);
  void (*synchronize_event)(Device, void* event);
  double (*seconds_between)(void* start, void* end);
  void (*synchronize_device)(Device);
  std::shared_ptr<void> (*allocate_pinned)(std::size_t bytes);
  // A range of the calling thread with a name, for Nsight Systems (NVTX).
  void (*push_range)(const char* name);
  void (*pop_range)();
  // Captured work (graph.h). What the stream is given from begin_capture on becomes the graph, and
  // memory comes from the graph's own pool, which goes to the stream of the last replay when the
  // graph goes.
  std::shared_ptr<void> (*create_graph)(Device);
  void (*begin_capture)(void* graph, void* stream);
  void (*end_capture)(void* graph, void* stream);
  void (*abandon_capture)(void* graph, void* stream);
  void (*replay)(void* graph, void* stream);
};
// Error where the build has no such device.
const StreamSpace& stream_space(Device device);
// Called once by a library that brings a device, before first use.
void register_stream_space(DeviceType type, const StreamSpace* space);

}  // namespace peal
