// SPDX-License-Identifier: Apache-2.0
// The handles of NVIDIA's libraries and what is worked out once for a geometry. A handle, or a
// cache of plans, belongs to a device and to one thread at a time: a thread borrows one for each
// device from a pool, at its first call, and gives it back when it ends. So threads of
// DataParallel, new ones at every step, find what others before them chose and timed. Handles are
// never destroyed, because the driver may be gone before a program's last destructors run. Nothing
// happens before a first call, so a build with CUDA runs on a machine without. Thread safety: any
// thread.
#pragma once

#include <peal/autograd/core/device.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace peal::cuda {

// "cublasLtMatmul" of the text of a call with its arguments, for messages.
inline std::string_view name_of_call(std::string_view text) {
  return text.substr(0, text.find('('));
}

// This thread's handle for the device, or pointer to what it keeps for it. REQUIRES: the device is
// the thread's current one, where create() asks for that.
template <class Handle, Handle (*create)()>
Handle handle_on(Device device) {
  struct Pool {
    std::mutex mutex;
    std::map<int, std::vector<Handle>> idle;
  };
  static Pool& pool = *new Pool;
  struct Borrowed {
    std::map<int, Handle> handles;
    ~Borrowed() {
      const std::lock_guard lock(pool.mutex);
      for (const auto& [index, handle] : handles) pool.idle[index].push_back(handle);
    }
  };
  thread_local Borrowed borrowed;
  const auto found = borrowed.handles.find(device.index);
  if (found != borrowed.handles.end()) return found->second;
  Handle handle{};
  {
    const std::lock_guard lock(pool.mutex);
    std::vector<Handle>& idle = pool.idle[device.index];
    if (!idle.empty()) {
      handle = idle.back();
      idle.pop_back();
    }
  }
  if (handle == nullptr) handle = create();
  borrowed.handles.emplace(device.index, handle);
  return handle;
}

// What was chosen for a geometry, by all the numbers that the choice depends on. Where sizes keep
// changing it starts anew now and then, but for plans that have stays() and say so. Thread safety:
// none; it is a thread's own.
template <std::size_t numbers, class Plan>
class PlanCache {
 public:
  using Key = std::array<std::int64_t, numbers>;

  // make(plan) fills a plan in its place, which it keeps. The reference is good until the next
  // call.
  template <class Make>
  Plan& get(const Key& key, Make&& make) {
    const auto found = plans_.find(key);
    if (found != plans_.end()) return found->second;
    if (plans_.size() >= most) make_room();
    const auto made = plans_.try_emplace(key).first;
    try {
      make(made->second);
    } catch (...) {
      plans_.erase(made);
      throw;
    }
    return made->second;
  }

 private:
  static constexpr std::size_t most = 4096;
  void make_room() {
    std::erase_if(plans_, [](const auto& each) {
      if constexpr (requires { each.second.stays(); }) return !each.second.stays();
      return true;
    });
  }
  struct Hash {
    std::size_t operator()(const Key& key) const {
      std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a, a number at a time
      for (const std::int64_t number : key) {
        hash = (hash ^ static_cast<std::uint64_t>(number)) * 0x100000001b3u;
        hash ^= hash >> 29;
      }
      return static_cast<std::size_t>(hash);
    }
  };
  std::unordered_map<Key, Plan, Hash> plans_;
};

}  // namespace peal::cuda
