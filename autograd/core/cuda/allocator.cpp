// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cuda/allocator.h>
#include <peal/autograd/core/cuda/check.h>
#include <peal/autograd/core/cuda/device.h>

#include <algorithm>
#include <array>
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
  std::vector<cudaStream_t> used_on{};  // further streams
};

// Released, but maybe still in use on further streams.
struct Resting {
  void* data;
  std::vector<cudaEvent_t> events;
};

double mebibytes(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

class Cache {
 public:
  void* allocate(Device device, std::size_t bytes, cudaStream_t stream) {
    const std::size_t size = (size_class(bytes) + alignment - 1) / alignment * alignment;
    std::lock_guard lock(mutex_);
    const auto captured = captured_.find(stream);
    const Owner owner{captured == captured_.end() ? general : captured->second, stream};
    if (captured_.empty()) wake();  // events may not be asked during a capture
    void* data = take(owner, size);
    if (data == nullptr) data = fresh(device, size, bytes, owner);
    const std::size_t own = blocks_.at(data).size;
    statistics_.in_use += own;
    statistics_.peak = std::max(statistics_.peak, statistics_.in_use);
    return data;
  }

  void release(Device device, void* data) {
    std::lock_guard lock(mutex_);
    Block& block = blocks_.at(data);
    statistics_.in_use -= block.size;
    if (block.used_on.empty()) return put(data, block);
    Resting resting{data, {}};
    const bool here = cudaSetDevice(device.index) == cudaSuccess;
    for (cudaStream_t stream : block.used_on) {
      cudaEvent_t event = nullptr;
      if (!here || cudaEventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess) return;
      resting.events.push_back(event);
      if (cudaEventRecord(event, stream) != cudaSuccess) return;  // lost, as the device is
    }
    block.used_on.clear();
    resting_.push_back(std::move(resting));
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
  void release_pool(int pool) {
    std::lock_guard lock(mutex_);
    for (auto& [data, block] : blocks_) {
      if (block.owner.pool == pool) block.owner.pool = general;
    }
    for (auto entry = free_.lower_bound({{pool, nullptr}, 0});
         entry != free_.end() && entry->first.first.pool == pool;) {
      auto& list = free_[{{general, entry->first.first.stream}, entry->first.second}];
      list.insert(list.end(), entry->second.begin(), entry->second.end());
      entry = free_.erase(entry);
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
      auto& [next, left] = slabs_[owner];
      if (left < size) {
        next = static_cast<std::byte*>(from_driver(device, slab_bytes, bytes));
        left = slab_bytes;
      }
      void* data = next;
      next += size;
      left -= size;
      blocks_.emplace(data, Block{size, owner, true});
      return data;
    }
    void* data = from_driver(device, size, bytes);
    blocks_.emplace(data, Block{size, owner, false});
    return data;
  }

  void* from_driver(Device device, std::size_t size, std::size_t bytes) {
    use(device);
    ++statistics_.from_system;
    // The driver may be asked while a graph is captured: what it gives is no part of the graph.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    PEAL_CUDA_CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
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
    static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode));
    if (status == cudaErrorMemoryAllocation) out_of_memory(device, bytes);
    PEAL_CHECK(status == cudaSuccess, "cuda: cudaMalloc of ", size, " bytes on ", device, ": ",
               cudaGetErrorString(status));
    return data;
  }

  [[noreturn]] void out_of_memory(Device device, std::size_t bytes) {
    std::size_t available = 0, all = 0;
    static_cast<void>(cudaMemGetInfo(&available, &all));
    std::size_t largest = 0;
    for (const auto& [data, block] : blocks_) largest = std::max(largest, block.size);
    fail(fmt::format(
        "cuda: {} has no memory left for {:.1f} MiB: tensors of this process hold {:.1f} MiB in "
        "{} blocks (the largest {:.1f} MiB), its cache {:.1f} MiB, and {:.1f} of the device's "
        "{:.1f} MiB are free; make the batch smaller, or see what else uses the device",
        name_of(device), mebibytes(bytes), mebibytes(statistics_.in_use), blocks_.size(),
        mebibytes(largest), mebibytes(statistics_.cached), mebibytes(available), mebibytes(all)));
  }

  // Blocks whose further streams are done can be given out again.
  void wake() {
    for (std::size_t i = 0; i < resting_.size();) {
      auto& events = resting_[i].events;
      while (!events.empty() && cudaEventQuery(events.back()) == cudaSuccess) {
        static_cast<void>(cudaEventDestroy(events.back()));
        events.pop_back();
      }
      if (!events.empty()) {
        static_cast<void>(cudaGetLastError());  // cudaErrorNotReady is none
        ++i;
        continue;
      }
      put(resting_[i].data, blocks_.at(resting_[i].data));
      resting_[i] = std::move(resting_.back());
      resting_.pop_back();
    }
  }

  void give_back(Device device) {
    use(device);
    static_cast<void>(cudaDeviceSynchronize());
    wake();
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
  std::map<Owner, std::pair<std::byte*, std::size_t>> slabs_;  // what is left of each newest one
  std::vector<Resting> resting_;
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
void release_pool(Device device, int pool) { cache(device).release_pool(pool); }

}  // namespace peal::cuda
