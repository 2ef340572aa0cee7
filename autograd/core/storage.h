// SPDX-License-Identifier: Apache-2.0
// Storage: a block of bytes on one device, shared by every tensor that looks into it. It counts
// versions (each in-place write adds one), so that a saved tensor notices that it has gone stale,
// and it can drop its bytes and regain them while its handles live (bucket rebuilds, sharded
// parameters):
//
//   storage->drop();      // between forward and backward
//   storage->regain();    // other bytes, a new version: who saved it could not read it
//   ...                   // an all-gather writes the values that it had
//   storage->restored();  // and they are what was saved
//
// Invariant: no two values ever had one version. Thread safety: as of a shared_ptr; writers of the
// same bytes must be ordered by the caller.
#pragma once

#include <peal/autograd/core/device.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

namespace peal {

class Storage;
struct DeferredValues;  // values that are yet to be made (deferred.h)
using StorageRef = std::shared_ptr<Storage>;

class Storage {
 public:
  // Uninitialised bytes of the device's caching allocator.
  static StorageRef allocate(std::size_t bytes, Device device);
  // Somebody else's memory; `release` (may be empty) runs when the last handle goes.
  static StorageRef wrap(void* data, std::size_t bytes, Device device,
                         std::function<void()> release);
  // Bytes of the allocator's that are dropped from the start. Who reads them then gets the Error
  // that `absent` throws, which knows what they are.
  static StorageRef without_bytes(std::size_t bytes, Device device, std::function<void()> absent);

  Storage(void* data, std::size_t bytes, Device device, std::function<void()> release, bool owned)
      : data_(data), bytes_(bytes), device_(device), release_(std::move(release)), owned_(owned) {}
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  ~Storage();

  // Error while the bytes are dropped.
  std::byte* data() const;
  std::size_t bytes() const { return bytes_; }
  Device device() const { return device_; }

  // Parts of it may be written by several threads at once: of those that a collective writes the
  // version is counted when that is over, by whichever thread finds out.
  std::uint64_t version() const { return version_.load(std::memory_order_relaxed); }
  void bump_version() {
    const std::uint64_t mine = newest_.fetch_add(1, std::memory_order_relaxed) + 1;
    std::uint64_t now = version();
    while (now < mine && !version_.compare_exchange_weak(now, mine, std::memory_order_relaxed)) {
    }
  }
  // How often all ranks were given the same values here, by a broadcast. Those of its root stay,
  // and so does the version; but who keeps more digits of them than these bytes do, as an
  // optimizer's masters, starts again from what all have.
  std::uint64_t broadcasts() const { return broadcasts_.load(std::memory_order_relaxed); }
  void count_broadcast() { broadcasts_.fetch_add(1, std::memory_order_relaxed); }

  // REQUIRES: allocated here, not wrapped. drop() gives the bytes back, and reading them is an
  // Error until regain(), which gets fresh, uninitialised ones and counts a version.
  void drop();
  void regain();
  // The values are again those that were there at the last drop(): so is the version, and what was
  // saved before may be read. Error where nothing was dropped and regained.
  void restored();
  // The bytes of another storage, as many on the same device, which has none then. REQUIRES: both
  // allocated here, this one without bytes; nobody reads the other any more.
  void take_bytes(Storage& from);
  bool has_bytes() const { return bytes_ == 0 || data_ != nullptr; }
  // Bytes of the allocator's, which nobody reaches but through this. Not so what is wrapped.
  bool owned() const { return owned_; }

  // It is this rank's piece of what all ranks have together (sharded parameters): what looks at
  // several elements at once, a norm say, sees too few of them here. For good.
  bool is_piece() const { return piece_; }
  void mark_piece() { piece_ = true; }

  // Its values are a copy of another's, or of a part of it, as t() and select() give, and that one
  // lives: who writes this meant to write that. Of a copy's copy the first is asked.
  bool is_copy() const { return !copied_.expired(); }
  void mark_copy_of(const StorageRef& other) {
    copied_ = other->is_copy() ? other->copied_ : std::weak_ptr<Storage>(other);
  }
  // It is nobody's copy, for it was meant to be one of its own. REQUIRES: no other handle reaches
  // it.
  void mark_own() { copied_.reset(); }

  // What its values are to be made of, while they are not (deferred.h); null for all others.
  const std::shared_ptr<DeferredValues>& deferred() const { return deferred_; }
  void set_deferred(std::shared_ptr<DeferredValues> values) { deferred_ = std::move(values); }

 private:
  void* data_;
  std::size_t bytes_;
  Device device_;
  std::atomic<std::uint64_t> version_{0}, newest_{0};
  std::optional<std::uint64_t> dropped_;  // the version at the last drop(), until restored()
  std::function<void()> release_, absent_;
  bool owned_, piece_ = false;
  std::weak_ptr<Storage> copied_;
  std::atomic<std::uint64_t> broadcasts_{0};
  std::shared_ptr<DeferredValues> deferred_;
};

}  // namespace peal
