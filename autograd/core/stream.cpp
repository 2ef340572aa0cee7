// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/stream.h>

#include <atomic>
#include <utility>

namespace peal {
namespace {

// Written once while a device library is loaded, read ever after.
std::atomic<const StreamSpace*> cuda_space{nullptr};

}  // namespace

const StreamSpace& stream_space(Device device) {
  const StreamSpace* found = cuda_space.load(std::memory_order_acquire);
  PEAL_CHECK(found != nullptr, "stream: ", device,
             " asked for, but this build has no CUDA; configure with -DPEAL_CUDA=ON or use cpu");
  return *found;
}

void register_stream_space(DeviceType type, const StreamSpace* space) {
  PEAL_CHECK(type == DeviceType::cuda, "stream: the CPU has none");
  cuda_space.store(space, std::memory_order_release);
}

Stream Stream::create(Device device, bool high_priority) {
  if (device.type == DeviceType::cpu) return {};
  return {device, stream_space(device).create(device, high_priority)};
}

void Stream::synchronize() const {
  if (handle_) stream_space(device_).synchronize(device_, handle_.get());
}

bool Stream::query() const {
  return !handle_ || stream_space(device_).query(device_, handle_.get());
}

void Stream::wait(const Event& event) const {
  if (!event.handle_) return;
  if (handle_) {
    stream_space(device_).wait(device_, handle_.get(), event.handle_.get());
  } else {
    event.synchronize();  // the CPU's work starts at once, so it is the host that waits
  }
}

void Event::record(const Stream& stream) {
  if (stream.native() == nullptr) {
    handle_.reset();
    return;
  }
  if (!handle_ || device_ != stream.device()) {
    device_ = stream.device();
    handle_ = stream_space(device_).create_event(device_, timed_);
  }
  stream_space(device_).record(device_, handle_.get(), stream.native());
}

bool Event::query() const {
  return !handle_ || stream_space(device_).reached(device_, handle_.get());
}

void Event::synchronize() const {
  if (handle_) stream_space(device_).synchronize_event(device_, handle_.get());
}

double Event::seconds_since(const Event& start) const {
  if (!handle_ || !start.handle_) return 0;
  PEAL_CHECK(timed_ && start.timed_, "event: only timed events can be subtracted: Event(true)");
  return stream_space(device_).seconds_between(start.handle_.get(), handle_.get());
}

Stream current_stream(Device device) {
  if (device.type == DeviceType::cpu) return {};
  const auto& chosen = context().stream;
  if (chosen && chosen->device() == device) return *chosen;
  return {device, stream_space(device).own(device)};
}

void synchronize(Device device) {
  if (device.type != DeviceType::cpu) stream_space(device).synchronize_device(device);
}

std::shared_ptr<void> allocate_pinned(std::size_t bytes) {
  const StreamSpace* found = cuda_space.load(std::memory_order_acquire);
  if (found == nullptr || device_count(DeviceType::cuda) == 0) return nullptr;
  return found->allocate_pinned(bytes);
}

StreamGuard::StreamGuard(const Stream& stream)
    : before_(std::exchange(context().stream, std::make_shared<const Stream>(stream))) {}

StreamGuard::~StreamGuard() { context().stream = before_; }

}  // namespace peal
