// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/cuda/check.h>
#include <peal/autograd/core/cuda/device.h>
#include <peal/autograd/core/cuda/pinned.h>
#include <peal/autograd/core/cuda/relaxed.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

namespace peal::cuda {
namespace {

// A device that the thread, or else the process, uses.
Device at_hand() {
  const Context& here = context();
  if (here.device.type == DeviceType::cuda) return here.device;
  if (here.stream && here.stream->device().type == DeviceType::cuda) return here.stream->device();
  return last_used();
}

// Blocks are kept by size class.
class PinnedCache {
 public:
  std::shared_ptr<void> take(std::size_t bytes) {
    const std::size_t size = std::bit_ceil(std::max<std::size_t>(bytes, 4096));
    use(at_hand());  // a thread's first call would else make a context on device 0
    const Relaxed relaxed;
    std::byte* data = idle(size);
    if (data == nullptr) data = fresh(size);
    return {data, [this](void* gone) { let_go(static_cast<std::byte*>(gone)); }};
  }

  bool has(const void* data) {
    const std::lock_guard lock(mutex_);
    return find(data) != nullptr;
  }

  void note(const void* data, cudaStream_t stream) {
    cudaEvent_t event = nullptr;
    {
      const std::lock_guard lock(mutex_);
      Block* const block = find(data);
      if (block == nullptr) return;
      const auto used =
          std::ranges::find_if(block->uses, [&](const Use& each) { return each.stream == stream; });
      if (used != block->uses.end()) {
        event = used->event;
      } else {
        PEAL_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        block->uses.push_back({stream, event});
      }
    }
    // Without the lock: a full queue lets who puts something into it stand.
    PEAL_CUDA_CHECK(cudaEventRecord(event, stream));
  }

 private:
  // The last copy in that stream.
  struct Use {
    cudaStream_t stream;
    cudaEvent_t event;
  };
  struct Block {
    std::size_t size;
    std::vector<Use> uses{};
  };

  Block* find(const void* data) {
    const auto* const at = static_cast<const std::byte*>(data);
    auto next = blocks_.upper_bound(at);
    if (next == blocks_.begin()) return nullptr;
    --next;
    return at < next->first + next->second.size ? &next->second : nullptr;
  }

  // One that no copy is at; null: none. A device may be slow to answer, so it is asked without the
  // lock: nobody else has what is taken off the list.
  std::byte* idle(std::size_t size) {
    std::vector<std::byte*> busy;
    std::byte* data = first_of(size);
    for (; data != nullptr && !is_over(data); data = first_of(size)) busy.push_back(data);
    const std::lock_guard lock(mutex_);
    std::deque<std::byte*>& list = free_[size];
    list.insert(list.begin(), busy.begin(), busy.end());
    return data;
  }

  std::byte* first_of(std::size_t size) {
    const std::lock_guard lock(mutex_);
    std::deque<std::byte*>& list = free_[size];
    if (list.empty()) return nullptr;
    std::byte* const data = list.front();
    list.pop_front();
    return data;
  }

  bool is_over(const std::byte* data) {
    std::vector<Use> uses;
    {
      const std::lock_guard lock(mutex_);
      uses = blocks_.at(data).uses;
    }
    return std::ranges::all_of(uses, [](const Use& each) {
      const bool reached = cudaEventQuery(each.event) == cudaSuccess;
      if (!reached) static_cast<void>(cudaGetLastError());  // it is no error of later calls
      return reached;
    });
  }

  std::byte* fresh(std::size_t size) {
    void* data = nullptr;
    PEAL_CUDA_CHECK(cudaHostAlloc(&data, size, cudaHostAllocPortable));
    const std::lock_guard lock(mutex_);
    blocks_.emplace(static_cast<std::byte*>(data), Block{size});
    return static_cast<std::byte*>(data);
  }

  void let_go(std::byte* data) {
    const std::lock_guard lock(mutex_);
    free_[blocks_.at(data).size].push_back(data);
  }

  std::mutex mutex_;
  std::map<const std::byte*, Block> blocks_;            // all, by where they begin
  std::map<std::size_t, std::deque<std::byte*>> free_;  // by size, the longest there first
};

// Never destroyed: memory with static storage may outlive any order of destruction.
PinnedCache& pinned() {
  static auto& cache = *new PinnedCache;
  return cache;
}

}  // namespace

std::shared_ptr<void> allocate_pinned(std::size_t bytes) { return pinned().take(bytes); }
bool is_pinned(const void* data) { return pinned().has(data); }
void note_copy(const void* data, cudaStream_t stream) { pinned().note(data, stream); }

}  // namespace peal::cuda
