// SPDX-License-Identifier: Apache-2.0
// Spinning, then yielding: what a rank that waits does between two questions. At first nothing, for
// a small collective is over by then; after some time it gives way to others, and now and then it
// looks at the control plane. `crowded`: the machine has more ranks than cores, so it does both at
// once. It counts time, not questions: one about memory takes many times one about messages. A
// value; thread safety: one thread.
#pragma once

#include <chrono>
#include <cstdint>

namespace peal::comm {

class Spins {
 public:
  explicit Spins(bool crowded) : crowded_(crowded) {}

  // One more question was asked in vain.
  void ask() {
    if (++asked_ % between_clocks != 0 || long_) return;
    const auto now = std::chrono::steady_clock::now();
    if (asked_ == between_clocks) since_ = now;
    long_ = now - since_ >= before_yield;
  }
  bool gives_way() const { return crowded_ || long_; }
  bool looks() const { return crowded_ || asked_ % between_looks == 0; }

  static constexpr std::chrono::microseconds before_yield{200};
  static constexpr std::uint64_t between_clocks = 16, between_looks = 64;

 private:
  std::uint64_t asked_ = 0;  // no wait is long enough for 64 bits; 32 are full after an hour
  std::chrono::steady_clock::time_point since_;
  bool crowded_, long_ = false;
};

}  // namespace peal::comm
