// SPDX-License-Identifier: Apache-2.0
// Spinning, then yielding: what a rank that waits does between two questions. For the first few
// microseconds nothing, for a small collective is over by then; later it gives way to others, and
// now and then it looks at the control plane. `crowded`: the node has more ranks than cores, so it
// does both at once. A value; thread safety: one thread.
#pragma once

#include <cstdint>

namespace peal::comm {

class Spins {
 public:
  // `asked`: questions that came before.
  explicit Spins(bool crowded, std::uint64_t asked = 0) : asked_(asked), crowded_(crowded) {}

  // One more question was asked in vain.
  void ask() { ++asked_; }
  bool gives_way() const { return crowded_ || asked_ > before_yield; }
  bool looks() const { return crowded_ || asked_ % between_looks == 0; }

  static constexpr std::uint64_t before_yield = 2000, between_looks = 64;

 private:
  std::uint64_t asked_;  // no wait is long enough for 64 bits; 32 are full after an hour
  bool crowded_;
};

}  // namespace peal::comm
