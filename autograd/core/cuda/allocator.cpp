// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cuda/allocator.h>
#include <peal/autograd/core/cuda/check.h>
#include <peal/autograd/core/cuda/device.h>
#include <peal/autograd/core/cuda/relaxed.h>
#include <peal/autograd/core/out_of_memory.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace peal::cuda {
namespace {

constexpr std::size_t slab_bytes = std::size_t{2} << 20;
// Above it a block is the driver's own, which can be given back; below it a part of a slab.
constexpr std::size_t most_small = slab_bytes / 4;
constexpr std::size_t alignment = 256;
constexpr int general = 0;  // the pool of all work that is not captured

// Who may reuse a block.
struct Owner {
  int pool;
  cudaStream_t stream;
  auto operator<=>(const Owner&) const = default;
};

struct Block {
  std::size_t size;
  Owner owner;
  bool of_slab;
  bool in_use = false;
  std::vector<cudaStream_t> used_on{};  // further streams
  std::size_t marks = 0;                // that a released block waits for
};

// Where a further stream is done with a released block.
struct Mark {
  cudaEvent_t event;
  void* data;
};

double mebibytes(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

class Cache {
 public:
  void* allocate(Device device, std::size_t bytes, cudaStream_t stream) {
    const std::size_t size = (size_class(bytes) + alignment - 1) / alignment * alignment;
    std::lock_guard lock(mutex_);
    const auto captured = captured_.find(stream);
    const Owner owner{captured == captured_.end() ? general : captured->second, stream};
    if (captured_.empty()) wake(device);
    void* data = take(owner, size);
    if (data == nullptr) data = fresh(device, size, bytes, owner);
    Block& block = blocks_.at(data);
    block.in_use = true;
    statistics_.in_use += block.size;
    statistics_.peak = std::max(statistics_.peak, statistics_.in_use);
    return data;
  }

  void release(Device device, void* data) {
    std::lock_guard lock(mutex_);
    Block& block = blocks_.at(data);
    block.in_use = false;
    statistics_.in_use -= block.size;
    if (block.used_on.empty()) return put(data, block);
    // What a stream captures runs in replays: an event that is recorded there is none of the
    // host's.
    if (captured_.empty()) {
      rest(device, data, block);
    } else {
      waiting_.push_back(data);
    }
  }

  void record_stream(void* data, cudaStream_t stream) {
    std::lock_guard lock(mutex_);
    const auto found = blocks_.find(data);
    if (found == blocks_.end()) return;  // symmetric or wrapped memory has its own rules
    Block& block = found->second;
    if (block.owner.stream == stream) return;
    if (std::find(block.used_on.begin(), block.used_on.end(), stream) == block.used_on.end())
      block.used_on.push_back(stream);
  }

  AllocatorStatistics statistics() {
    std::lock_guard lock(mutex_);
    return statistics_;
  }

  void reset_peak() {
    std::lock_guard lock(mutex_);
    statistics_.peak = statistics_.in_use;
  }

  void empty(Device device) {
    std::lock_guard lock(mutex_);
    if (captured_.empty()) give_back(device);  // a capture must not be waited for
  }

  int make_pool() {
    std::lock_guard lock(mutex_);
    return ++pools_;
  }
  void begin_pool(int pool, cudaStream_t stream) {
    std::lock_guard lock(mutex_);
    captured_[stream] = pool;
  }
  void end_pool(cudaStream_t stream) {
    std::lock_guard lock(mutex_);
    captured_.erase(stream);
  }
  void release_pool(int pool, cudaStream_t stream) {
    std::lock_guard lock(mutex_);
    const Owner heir{general, stream};
    for (auto& [data, block] : blocks_) {
      if (block.owner.pool == pool) block.owner = heir;
    }
    for (auto entry = free_.lower_bound({{pool, nullptr}, 0});
         entry != free_.end() && entry->first.first.pool == pool;) {
      auto& list = free_[{heir, entry->first.second}];
      list.insert(list.end(), entry->second.begin(), entry->second.end());
      entry = free_.erase(entry);
    }
    for (auto entry = slabs_.lower_bound({pool, nullptr});
         entry != slabs_.end() && entry->first.pool == pool;) {
      auto& rests = slabs_[heir];
      rests.insert(rests.end(), entry->second.begin(), entry->second.end());
      entry = slabs_.erase(entry);
    }
  }

 private:
  using Key = std::pair<Owner, std::size_t>;

  // A free block of the owner of this size class, or of up to twice the size.
  void* take(Owner owner, std::size_t size) {
    const auto found = free_.lower_bound({owner, size});
    if (found == free_.end() || found->first.first != owner) return nullptr;
    const std::size_t most = size > most_small ? 2 * size : size;
    if (found->first.second > most) return nullptr;
    void* data = found->second.back();
    found->second.pop_back();
    statistics_.cached -= found->first.second;
    if (found->second.empty()) free_.erase(found);
    return data;
  }

  void put(void* data, const Block& block) {
    free_[{block.owner, block.size}].push_back(data);
    statistics_.cached += block.size;
  }

  void* fresh(Device device, std::size_t size, std::size_t bytes, Owner owner) {
    if (size <= most_small) {
      void* data = cut(device, size, bytes, owner);
      blocks_.emplace(data, Block{size, owner, true});
      return data;
    }
    void* data = from_driver(device, size, bytes);
    blocks_.emplace(data, Block{size, owner, false});
    return data;
  }

  // A part of a slab.
  void* cut(Device device, std::size_t size, std::size_t bytes, Owner owner) {
    auto& rests = slabs_[owner];
    auto rest = std::find_if(rests.begin(), rests.end(),
                             [&](const auto& one) { return one.second >= size; });
    if (rest == rests.end()) {
      auto* slab = static_cast<std::byte*>(from_driver(device, slab_bytes, bytes));
      rest = rests.emplace(rests.end(), slab, slab_bytes);
    }
    void* data = rest->first;
    rest->first += size;
    rest->second -= size;
    if (rest->second == 0) rests.erase(rest);
    return data;
  }

  void* from_driver(Device device, std::size_t size, std::size_t bytes) {
    use(device);
    ++statistics_.from_system;
    const Relaxed relaxed;  // what the driver gives is no part of a graph
    void* data = nullptr;
    cudaError_t status = cudaMalloc(&data, size);
    if (status == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());  // it was no error of later calls
      if (captured_.empty()) {
        give_back(device);
        status = cudaMalloc(&data, size);
        if (status == cudaErrorMemoryAllocation) static_cast<void>(cudaGetLastError());
      }
    }
    if (status == cudaErrorMemoryAllocation) out_of_memory(device, bytes);
    PEAL_CHECK(status == cudaSuccess, "cuda: cudaMalloc of ", size, " bytes on ", device, ": ",
               cudaGetErrorString(status));
    return data;
  }

  [[noreturn]] void out_of_memory(Device device, std::size_t bytes) {
    std::size_t available = 0, all = 0;
    static_cast<void>(cudaMemGetInfo(&available, &all));
    std::size_t largest = 0, count = 0;
    for (const auto& [data, block] : blocks_) {
      if (!block.in_use) continue;
      largest = std::max(largest, block.size);
      ++count;
    }
    throw OutOfMemory(fmt::format(
        "cuda: {} has no memory left for {:.1f} MiB: tensors of this process hold {:.1f} MiB in "
        "{} blocks (the largest {:.1f} MiB), its cache {:.1f} MiB, and {:.1f} of the device's "
        "{:.1f} MiB are free; make the batch smaller, or see what else uses the device",
        name_of(device), mebibytes(bytes), mebibytes(statistics_.in_use), count, mebibytes(largest),
        mebibytes(statistics_.cached), mebibytes(available), mebibytes(all)));
  }

  // Until its further streams have come to where they are now.
  void rest(Device device, void* data, Block& block) {
    const std::vector<cudaStream_t> streams = std::exchange(block.used_on, {});
    block.marks = streams.size();
    const bool here = cudaSetDevice(device.index) == cudaSuccess;
    for (cudaStream_t stream : streams) {
      cudaEvent_t event = nullptr;
      if (!here || cudaEventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess) return;
      if (cudaEventRecord(event, stream) != cudaSuccess) {  // the block is lost, as the device is
        static_cast<void>(cudaEventDestroy(event));
        return;
      }
      resting_[stream].push_back({event, data});
    }
  }

  // Blocks whose further streams are done can be given out again. REQUIRES: nothing is captured
  // here.
  void wake(Device device) {
    const Relaxed relaxed;  // the thread may capture on another device
    // A graph's own wait until it goes: its replays use them on several streams.
    std::erase_if(waiting_, [&](void* data) {
      Block& block = blocks_.at(data);
      if (block.owner.pool != general) return false;
      rest(device, data, block);
      return true;
    });
    // A stream comes to its marks in their order, so behind one that is not reached none is asked.
    for (auto& [stream, marks] : resting_) {
      for (; !marks.empty(); marks.pop_front()) {
        const auto [event, data] = marks.front();
        const cudaError_t status = cudaEventQuery(event);
        if (status != cudaSuccess)
          static_cast<void>(cudaGetLastError());  // not reached is no error
        if (status == cudaErrorNotReady) break;
        static_cast<void>(cudaEventDestroy(event));
        if (status != cudaSuccess) continue;  // never will be: that block is lost, others are not
        Block& block = blocks_.at(data);
        if (--block.marks == 0) put(data, block);
      }
    }
  }

  void give_back(Device device) {
    use(device);
    static_cast<void>(cudaDeviceSynchronize());
    wake(device);
    for (auto entry = free_.begin(); entry != free_.end();) {
      auto& [key, list] = *entry;
      std::erase_if(list, [&, size = key.second, pool = key.first.pool](void* data) {
        if (pool != general || blocks_.at(data).of_slab) return false;
        static_cast<void>(cudaFree(data));
        blocks_.erase(data);
        statistics_.cached -= size;
        return true;
      });
      entry = list.empty() ? free_.erase(entry) : std::next(entry);
    }
  }

  std::mutex mutex_;
  std::unordered_map<void*, Block> blocks_;
  std::map<Key, std::vector<void*>> free_;
  std::map<Owner, std::vector<std::pair<std::byte*, std::size_t>>> slabs_;  // what is left of them
  std::unordered_map<cudaStream_t, std::deque<Mark>> resting_;
  std::vector<void*> waiting_;  // released while work was captured, and used on further streams
  std::unordered_map<cudaStream_t, int> captured_;  // streams that allocate from a pool
  int pools_ = general;
  AllocatorStatistics statistics_;
};

constexpr int most_devices = 64;

// Never destroyed: tensors with static storage may outlive any order of destruction.
Cache& cache(Device device) {
  static auto& all = *new std::array<Cache, most_devices>;
  PEAL_CHECK(device.index >= 0 && device.index < most_devices, "cuda: ", device, ": at most ",
             most_devices, " devices are served");
  return all[static_cast<std::size_t>(device.index)];
}

}  // namespace

void* allocate(Device device, std::size_t bytes, cudaStream_t stream) {
  return bytes == 0 ? nullptr : cache(device).allocate(device, bytes, stream);
}
void release(Device device, void* data) {
  if (data != nullptr) cache(device).release(device, data);
}
void record_stream(Device device, void* data, cudaStream_t stream) {
  cache(device).record_stream(data, stream);
}
AllocatorStatistics statistics(Device device) { return cache(device).statistics(); }
void reset_peak(Device device) { cache(device).reset_peak(); }
void empty_cache(Device device) { cache(device).empty(device); }
int make_pool(Device device) { return cache(device).make_pool(); }
void begin_pool(Device device, int pool, cudaStream_t stream) {
  cache(device).begin_pool(pool, stream);
}
void end_pool(Device device, cudaStream_t stream) { cache(device).end_pool(stream); }
void release_pool(Device device, int pool, cudaStream_t stream) {
  cache(device).release_pool(pool, stream);
}

}  // namespace peal::cuda
