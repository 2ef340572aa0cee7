// SPDX-License-Identifier: Apache-2.0
#include "block.h"

#include <cuda_host_ptx.h>

#include "fiber.h"
#include "random.h"

#include <array>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

constinit thread_local uint3 threadIdx{0, 0, 0}, blockIdx{0, 0, 0};
constinit thread_local dim3 blockDim{1, 1, 1}, gridDim{1, 1, 1};

namespace cuda_host {

// A copy that is under way, from where 16 bytes may be fewer.
struct Copy {
  void* to;
  const void* from;
  int bytes;
};

struct Thread {
  Fiber* fiber = nullptr;  // while it has one
  uint3 index{0, 0, 0};
  WarpOp op = WarpOp::sync;
  unsigned mask = 0;
  int source = 0;
  std::uint64_t value = 0;  // given, then got
  Together together = nullptr;
  std::vector<Copy> copies;
};

// Its lanes, a bit each: that live, and of these, that wait at a warp operation.
struct Warp {
  unsigned living = 0, waiting = 0;
};

class Block {
 public:
  void begin(uint3 index, dim3 grid, dim3 size, const std::function<void()>& thread) {
    kernel_ = &thread;
    index_ = index;
    grid_ = grid;
    size_ = size;
    const std::size_t count = std::size_t{size.x} * size.y * size.z;
    threads_.assign(count, Thread());
    warps_.assign((count + 31) / 32, Warp());
    fresh_.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto at = static_cast<unsigned>(i);
      threads_[i].index = {at % size.x, at / size.x % size.y, at / size.x / size.y};
      warps_[i / 32].living |= 1u << i % 32;
      fresh_[i] = i;
    }
    shuffle_order(fresh_);
    ready_.clear();
    spinning_.clear();
    living_ = count;
    waiting_ = 0;
    failure_.clear();
  }

  // True once it has ended, well or not; false where its threads wait for those that spin.
  bool run() {
    running_block() = this;
    blockIdx = index_;
    gridDim = grid_;
    blockDim = size_;
    shuffle_order(spinning_);
    ready_.insert(ready_.end(), spinning_.begin(), spinning_.end());
    spinning_.clear();
    go_on(host_);
    running_block() = nullptr;
    if (!spinning_.empty() && failure_.empty()) return false;
    idle_.clear();
    for (const auto& fiber : fibers_) idle_.push_back(fiber.get());
    if (!failure_.empty()) give_up();
    return true;
  }

  // What waits on the stacks is given up, with them.
  void give_up() {
    idle_.clear();
    fibers_.clear();
  }

  // The block whose threads run.
  static Block*& running_block() {
    thread_local Block* block = nullptr;
    return block;
  }

  // True where any thread's vote was not 0.
  bool barrier(bool vote) {
    vote_ = vote_ || vote;
    ++waiting_;
    at_barrier_.push_back(current_);
    if (waiting_ == living_) pass_barrier();
    wait();
    return voted_;
  }

  void spin() {
    spinning_.push_back(current_);
    wait();
  }

  std::uint64_t exchange(WarpOp op, unsigned mask, std::uint64_t value, int source) {
    Thread& own = threads_[current_];
    if ((mask >> (current_ % 32) & 1) == 0)
      fail("a lane is not in the mask of its own warp operation");
    own.op = op;
    own.mask = mask;
    own.value = value;
    own.source = source;
    warps_[current_ / 32].waiting |= 1u << current_ % 32;
    settle(current_ / 32, mask);
    wait();
    return own.value;
  }

  void together(Together what, void* mine) {
    threads_[current_].together = what;
    exchange(WarpOp::together, ~0u, reinterpret_cast<std::uintptr_t>(mine), 0);
  }

  void copy_later(const Copy& copy) {
    const auto aligned = [](const void* at) {
      return reinterpret_cast<std::uintptr_t>(at) % 16 == 0;
    };
    if (!aligned(copy.to) || !aligned(copy.from) || copy.bytes < 0 || copy.bytes > 16) {
      fail("cp.async of 16 bytes that are not on boundaries of 16");
    }
    std::memset(copy.to, 0xff, 16);
    threads_[current_].copies.push_back(copy);
  }

  void copies_arrive() {
    for (const Copy& copy : threads_[current_].copies) {
      std::memset(copy.to, 0, 16);
      std::memcpy(copy.to, copy.from, static_cast<std::size_t>(copy.bytes));
    }
    threads_[current_].copies.clear();
  }

  [[noreturn]] void trap() { fail("a thread trapped"); }

  std::size_t current() const { return current_; }
  const std::string& failure() const { return failure_; }
  const uint3& index() const { return index_; }

 private:
  // The lanes of the mask go on when all that live have come with the same mask.
  void settle(std::size_t warp, unsigned mask) {
    Warp& lanes = warps_[warp];
    const unsigned expected = mask & lanes.living;
    if ((expected & ~lanes.waiting) != 0) return;
    const std::size_t first = warp * 32;
    std::array<std::uint64_t, 32> given;
    given.fill(~std::uint64_t{0});  // a lane that is gone, or not in the mask: poison
    unsigned votes = 0, come = 0;
    WarpOp op = WarpOp::sync;
    for (std::size_t i = 0; i < 32; ++i) {
      if ((expected >> i & 1) == 0) continue;
      const Thread& lane = threads_[first + i];
      if (lane.mask != mask) return;
      if (come != 0 && lane.op != op) fail("lanes of one warp meet in different warp operations");
      op = lane.op;
      come |= 1u << i;
      given[i] = lane.value;
      if (lane.value != 0) votes |= 1u << i;
    }
    if (op == WarpOp::together) work_together(first, come, given);
    lanes.waiting &= ~come;
    for (std::size_t i = 0; i < 32; ++i) {
      if ((come >> i & 1) == 0) continue;
      Thread& lane = threads_[first + i];
      lane.value = op == WarpOp::ballot ? votes : given[static_cast<std::size_t>(lane.source) & 31];
      ready_.push_back(first + i);
    }
  }

  void work_together(std::size_t first, unsigned come, const std::array<std::uint64_t, 32>& given) {
    if (come != ~0u) fail("an operation of a whole warp, without some of its lanes");
    std::array<void*, 32> lanes;
    for (std::size_t i = 0; i < 32; ++i) {
      if (threads_[first + i].together != threads_[first].together) {
        fail("lanes of one warp meet in different warp operations");
      }
      lanes[i] = reinterpret_cast<void*>(given[i]);
    }
    const char* problem = threads_[first].together(lanes.data());
    if (problem != nullptr) fail(problem);
  }

  void pass_barrier() {
    waiting_ = 0;
    voted_ = std::exchange(vote_, false);
    shuffle_order(at_barrier_);
    ready_.insert(ready_.end(), at_barrier_.begin(), at_barrier_.end());
    at_barrier_.clear();
  }

  // Leaves the running thread until it may go on.
  void wait() {
    const std::size_t own = current_;
    if (!ready_.empty() && ready_.back() == own && (fresh_.empty() || draw() % 2 == 0)) {
      ready_.pop_back();
      return;
    }
    threads_[own].fiber = running_;
    go_on(*running_);
    // Whoever came back here has made this thread the current one.
  }

  // From `from` to the next thread that can run, or back to the host where there is none.
  void go_on(Fiber& from) {
    Fiber* to = &host_;
    if (!failure_.empty()) {
    } else if (!ready_.empty() && (fresh_.empty() || draw() % 2 == 0)) {
      const std::size_t at = ready_.size() - 1 - below(std::min<std::size_t>(ready_.size(), 32));
      const std::size_t next = ready_[at];
      ready_[at] = ready_.back();
      ready_.pop_back();
      to = threads_[next].fiber;
      enter(next);
    } else if (!fresh_.empty()) {
      to = take_fiber();
    } else if (living_ > 0 && spinning_.empty()) {
      failure_ = deadlock();
    }
    running_ = to;
    if (to != &from) from.switch_to(*to);
  }

  void enter(std::size_t thread) {
    current_ = thread;
    threadIdx = threads_[thread].index;
  }

  Fiber* take_fiber() {
    if (idle_.empty()) {
      fibers_.push_back(std::make_unique<Fiber>(fibers_.size(), [this] { serve(); }));
      return fibers_.back().get();
    }
    Fiber* fiber = idle_.back();
    idle_.pop_back();
    return fiber;
  }

  // The life of a fiber: fresh threads one after the other.
  void serve() {
    for (;;) {
      while (!fresh_.empty()) {
        enter(fresh_.back());
        fresh_.pop_back();
        (*kernel_)();
        end_thread();
      }
      Fiber* own = running_;
      idle_.push_back(own);
      go_on(*own);
    }
  }

  void end_thread() {
    Thread& own = threads_[current_];
    if (!own.copies.empty()) fail("a thread ends while its copies are under way");
    const std::size_t warp = current_ / 32;
    Warp& lanes = warps_[warp];
    lanes.living &= ~(1u << current_ % 32);
    --living_;
    if (living_ > 0 && waiting_ == living_) pass_barrier();
    for (std::size_t i = 0; i < 32 && lanes.waiting != 0; ++i) {
      if ((lanes.waiting >> i & 1) != 0) settle(warp, threads_[warp * 32 + i].mask);
    }
  }

  [[noreturn]] void fail(const char* what) {
    failure_ = what;
    for (;;) go_on(*running_);
  }

  std::string deadlock() const {
    std::size_t warp = 0, example = 0;
    for (std::size_t i = 0; i < threads_.size(); ++i) {
      if ((warps_[i / 32].waiting >> i % 32 & 1) == 0) continue;
      ++warp;
      example = i;
    }
    std::string text = "deadlock: of " + std::to_string(living_) + " living threads " +
                       std::to_string(waiting_) + " wait at __syncthreads";
    if (warp > 0) {
      text += " and " + std::to_string(warp) + " at a warp operation (thread " +
              std::to_string(example) + " among them)";
    }
    return text + ", and nobody else is left who could come";
  }

  const std::function<void()>* kernel_ = nullptr;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  uint3 index_{0, 0, 0};
  dim3 grid_, size_;
  std::vector<std::size_t> fresh_, ready_, at_barrier_, spinning_;
  std::size_t living_ = 0, waiting_ = 0, current_ = 0;
  bool vote_ = false, voted_ = false;
  std::string failure_;
  Fiber host_;
  Fiber* running_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
};

namespace {

// Blocks that are done, with their stacks, for the next grid of the same host thread.
std::vector<std::unique_ptr<Block>>& spare() {
  thread_local std::vector<std::unique_ptr<Block>> blocks;
  return blocks;
}

Block& current() { return *Block::running_block(); }

}  // namespace

// Blocks in the order of a walk in equal strides around all of them, which visits each once.
Grid::Grid(dim3 grid, dim3 block, std::function<void()> thread)
    : grid_(grid), size_(block), thread_(std::move(thread)) {
  count_ = left_ = std::uint64_t{grid.x} * grid.y * grid.z;
  stride_ = draw() % count_ + 1;
  at_ = draw() % count_;
  for (std::uint64_t a = stride_, b = count_; b != 0 || a != 1;) {
    if (b == 0) a = ++stride_, b = count_;  // a common divisor: try the next
    a %= b;
    std::swap(a, b);
  }
}

Grid::~Grid() {
  for (auto& block : resident_) block->give_up();
}

void Grid::begin_next() {
  if (spare().empty()) spare().push_back(std::make_unique<Block>());
  resident_.push_back(std::move(spare().back()));
  spare().pop_back();
  const uint3 index = {static_cast<unsigned>(at_ % grid_.x),
                       static_cast<unsigned>(at_ / grid_.x % grid_.y),
                       static_cast<unsigned>(at_ / grid_.x / grid_.y)};
  resident_.back()->begin(index, grid_, size_, thread_);
  at_ = (at_ + stride_) % count_;
  --left_;
}

// Runs one of the resident blocks; true where it is gone.
bool Grid::over(std::size_t resident) {
  Block& block = *resident_[resident];
  if (!block.run()) return false;
  if (!block.failure().empty()) {
    const uint3 index = block.index();
    failure_ = "block (" + std::to_string(index.x) + ", " + std::to_string(index.y) + ", " +
               std::to_string(index.z) + "): " + block.failure();
  }
  spare().push_back(std::move(resident_[resident]));
  resident_.erase(resident_.begin() + static_cast<std::ptrdiff_t>(resident));
  return true;
}

bool Grid::advance() {
  for (bool moved = true; moved && failure_.empty();) {
    moved = false;
    for (std::size_t i = 0; i < resident_.size() && failure_.empty();) {
      if (over(i)) {
        moved = true;
      } else {
        ++i;
      }
    }
    while (left_ > 0 && resident_.size() < most_resident && failure_.empty()) {
      begin_next();
      moved = over(resident_.size() - 1) || moved;
    }
  }
  return !failure_.empty() || (left_ == 0 && resident_.empty());
}

std::uint64_t warp_exchange(WarpOp op, unsigned mask, std::uint64_t value, int source) {
  const std::uint64_t got = current().exchange(op, mask, value, source);
  asm volatile("" ::: "memory");
  return got;
}

void warp_together(Together what, void* mine) {
  current().together(what, mine);
  asm volatile("" ::: "memory");
}

void copy_later(void* to, const void* from, int bytes) { current().copy_later({to, from, bytes}); }
void copies_arrive() {
  current().copies_arrive();
  asm volatile("" ::: "memory");
}

int lane() { return static_cast<int>(current().current() % 32); }

}  // namespace cuda_host

void __trap() { cuda_host::current().trap(); }

void __syncthreads() {
  cuda_host::current().barrier(false);
  asm volatile("" ::: "memory");
}

int __syncthreads_or(int predicate) {
  const bool any = cuda_host::current().barrier(predicate != 0);
  asm volatile("" ::: "memory");
  return any;
}

void __nanosleep(unsigned) {
  cuda_host::current().spin();
  asm volatile("" ::: "memory");
}
