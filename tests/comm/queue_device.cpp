// SPDX-License-Identifier: Apache-2.0
#include "queue_device.h"

#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/comm/reduce/cpu/reduce.h>
#include <peal/comm/reduce/table.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace peal::testing {
namespace {

constexpr int devices = 16;

// A stream. Its thread ends when all that was put into it is done.
class Queue {
 public:
  Queue() : thread_([this] { run(); }) {}
  ~Queue() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  void put(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      works_.push_back(std::move(work));
    }
    changed_.notify_all();
  }
  bool idle() {
    const std::lock_guard lock(mutex_);
    return works_.empty();
  }
  void drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return works_.empty(); });
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return over_ || !works_.empty(); });
      if (works_.empty()) return;
      {
        const std::function<void()> work = std::move(works_.front());
        lock.unlock();
        work();
      }
      lock.lock();
      works_.pop_front();  // only now: the queue is not idle while it works
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> works_;
  bool over_ = false;
  std::thread thread_;
};
using QueueRef = std::shared_ptr<Queue>;

// Places in queues, numbered; an event knows the last one that was recorded.
class Places {
 public:
  std::uint64_t next() {
    const std::lock_guard lock(mutex_);
    return ++recorded_;
  }
  void reach(std::uint64_t place) {
    {
      const std::lock_guard lock(mutex_);
      reached_ = std::max(reached_, place);
    }
    changed_.notify_all();
  }
  std::uint64_t recorded() {
    const std::lock_guard lock(mutex_);
    return recorded_;
  }
  bool query() {
    const std::lock_guard lock(mutex_);
    return reached_ >= recorded_;
  }
  void wait(std::uint64_t place) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reached_ >= place; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t recorded_ = 0, reached_ = 0;
};
using PlacesRef = std::shared_ptr<Places>;

// Handles are pointers to these: what lies in a queue must outlive the caller's handle.
struct StreamHandle {
  QueueRef queue = std::make_shared<Queue>();
};
struct EventHandle {
  PlacesRef places = std::make_shared<Places>();
};
Queue& queue_of(void* stream) { return *static_cast<StreamHandle*>(stream)->queue; }
Places& places_of(void* event) { return *static_cast<EventHandle*>(event)->places; }

const std::shared_ptr<StreamHandle>& own_stream(Device device) {
  static auto& streams = *new std::array<std::shared_ptr<StreamHandle>, devices>;
  static std::once_flag made;
  std::call_once(made, [] {
    for (auto& stream : streams) stream = std::make_shared<StreamHandle>();
  });
  return streams.at(static_cast<std::size_t>(device.index));
}

QueueRef current(Device device) {
  return static_cast<StreamHandle*>(current_stream(device).native())->queue;
}

// Which queues use a block.
struct Blocks {
  std::mutex mutex;
  std::map<void*, std::vector<QueueRef>> users;
};
Blocks& blocks() {
  static auto& all = *new Blocks;
  return all;
}

std::atomic<bool>& silent(Device device) {
  static std::array<std::atomic<bool>, devices> all{};
  return all.at(static_cast<std::size_t>(device.index));
}

void* allocate(Device device, std::size_t bytes) {
  if (bytes == 0) return nullptr;
  void* data = ::operator new (bytes, std::align_val_t{64});
  std::memset(data, 0xff, bytes);  // NaN
  const std::lock_guard lock(blocks().mutex);
  blocks().users[data] = {current(device)};
  return data;
}

void release(Device, void* data, std::size_t) {
  if (data == nullptr) return;
  std::vector<QueueRef> users;
  {
    const std::lock_guard lock(blocks().mutex);
    users = std::move(blocks().users.at(data));
    blocks().users.erase(data);
  }
  // The last of them frees it.
  const std::shared_ptr<void> block(
      data, [](void* memory) { ::operator delete (memory, std::align_val_t{64}); });
  for (const QueueRef& queue : users) queue->put([block] {});
}

void copy(void* dst, Device to, const void* src, Device from, std::size_t bytes, bool wait) {
  const QueueRef queue = current(to.type == DeviceType::cuda ? to : from);
  if (bytes != 0) queue->put([=] { std::memmove(dst, src, bytes); });
  if (wait) queue->drain();
}

constexpr MemorySpace memory = {
    .allocate = allocate,
    .release = release,
    .zero =
        [](Device device, void* data, std::size_t bytes) {
          if (bytes != 0) current(device)->put([=] { std::memset(data, 0, bytes); });
        },
    .copy = copy,
    .record_stream =
        [](Device, void* data, void* stream) {
          const std::lock_guard lock(blocks().mutex);
          const auto found = blocks().users.find(data);
          if (found == blocks().users.end()) return;
          found->second.push_back(static_cast<StreamHandle*>(stream)->queue);
        },
    .statistics = [](Device) { return AllocatorStatistics{}; },
    .reset_peak = [](Device) {},
    .empty_cache = [](Device) {},
    .count = [] { return devices; },
    .describe = [](Device) { return DeviceDescription{}; },
};

constexpr StreamSpace streams = {
    .create = [](Device, bool) -> std::shared_ptr<void> {
      return std::make_shared<StreamHandle>();
    },
    .own = [](Device device) -> std::shared_ptr<void> { return own_stream(device); },
    .synchronize = [](Device, void* stream) { queue_of(stream).drain(); },
    .query = [](Device, void* stream) { return queue_of(stream).idle(); },
    .wait =
        [](Device, void* stream, void* event) {
          const PlacesRef places = static_cast<EventHandle*>(event)->places;
          queue_of(stream).put([places, place = places->recorded()] { places->wait(place); });
        },
    .create_event = [](Device, bool) -> std::shared_ptr<void> {
      return std::make_shared<EventHandle>();
    },
    .record =
        [](Device, void* event, void* stream) {
          const PlacesRef places = static_cast<EventHandle*>(event)->places;
          queue_of(stream).put([places, place = places->next()] { places->reach(place); });
        },
    .reached =
        [](Device device, void* event) {
          silent(device).wait(true);
          return places_of(event).query();
        },
    .synchronize_event = [](Device,
                            void* event) { places_of(event).wait(places_of(event).recorded()); },
    .seconds_between = [](void*, void*) { return 0.0; },
    .synchronize_device = [](Device device) { own_stream(device)->queue->drain(); },
    .allocate_pinned = [](std::size_t bytes) -> std::shared_ptr<void> {
      return {::operator new (bytes, std::align_val_t{64}),
              [](void* memory) { ::operator delete (memory, std::align_val_t{64}); }};
    },
    .push_range = [](const char*) {},
    .pop_range = [] {},
    .create_graph = nullptr,
    .begin_capture = nullptr,
    .end_capture = nullptr,
    .abandon_capture = nullptr,
    .replay = nullptr,
};

// The caller has chosen the stream.
template <auto F>
struct Late {
  template <class... Arguments>
  static void call(Arguments... arguments) {
    current(context().device)->put([=] { F(arguments...); });
  }
};

constexpr comm::WireKernels kernels = {
    .reduce = Late<comm::reduce_cpu>::call<DType, comm::ReduceOp, void*, const void*, std::int64_t>,
    .scale = Late<comm::scale_cpu>::call<DType, void*, double, std::int64_t>,
    .divide = Late<comm::divide_cpu>::call<DType, void*, std::int64_t, std::int64_t>,
    .widen = Late<comm::widen_cpu>::call<DType, float*, const void*, std::int64_t>,
    .narrow = Late<comm::narrow_cpu>::call<DType, void*, const float*, std::int64_t>,
};

}  // namespace

void register_queue_device() {
  static std::once_flag registered;
  std::call_once(registered, [] {
    register_memory_space(DeviceType::cuda, &memory);
    register_stream_space(DeviceType::cuda, &streams);
    comm::register_wire_kernels(DeviceType::cuda, &kernels);
  });
}

void answer(Device device, bool answers) {
  silent(device) = !answers;
  silent(device).notify_all();
}

void put(const Stream& stream, std::function<void()> work) {
  queue_of(stream.native()).put(std::move(work));
}

}  // namespace peal::testing
