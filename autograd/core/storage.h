// SPDX-License-Identifier: Apache-2.0
// Storage: a block of bytes on one device, shared by every tensor that looks into it. It counts
// versions (each in-place write adds one), so that a saved tensor notices that it has gone stale,
// and it can drop its bytes and regain them while its handles live (bucket rebuilds, sharded
// parameters). Thread safety: as of a shared_ptr; writers of the same bytes must be ordered by the
// caller.
#pragma once

#include <peal/autograd/core/device.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace peal {

class Storage;
using StorageRef = std::shared_ptr<Storage>;

class Storage {
 public:
  // Uninitialised bytes of the device's caching allocator.
  static StorageRef allocate(std::size_t bytes, Device device);
  // Somebody else's memory; `release` (may be empty) runs when the last handle goes.
  static StorageRef wrap(void* data, std::size_t bytes, Device device,
                         std::function<void()> release);

  Storage(void* data, std::size_t bytes, Device device, std::function<void()> release, bool owned)
      : data_(data), bytes_(bytes), device_(device), release_(std::move(release)), owned_(owned) {}
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  ~Storage();

  // Error while the bytes are dropped.
  std::byte* data() const;
  std::size_t bytes() const { return bytes_; }
  Device device() const { return device_; }

  std::uint64_t version() const { return version_; }
  void bump_version() { ++version_; }

  // REQUIRES: allocated here, not wrapped. drop() gives the bytes back, regain() gets fresh,
  // uninitialised ones.
  void drop();
  void regain();
  bool has_bytes() const { return bytes_ == 0 || data_ != nullptr; }

 private:
  void* data_;
  std::size_t bytes_;
  Device device_;
  std::uint64_t version_ = 0;
  std::function<void()> release_;
  bool owned_;
};

}  // namespace peal
