// SPDX-License-Identifier: Apache-2.0
// Immediate collective: one that runs within its call. Ranks that share memory mostly come together
// within a microsecond, and then a call needs no operation: nothing is allocated, and no clock is
// looked at. Where a rank is late, an operation goes on from where it has come to. Thread safety:
// values.
#pragma once

#include <peal/comm/control/board.h>
#include <peal/comm/engine/call.h>
#include <peal/comm/engine/walk.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

namespace peal::comm {

// What is the same of calls that differ in their buffers alone.
struct Immediate {
  std::shared_ptr<const Plan> plan{};
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  bool averages = false;
  std::uint64_t signature = 0;  // the call's
  std::uint64_t words[2] = {};  // of Finished
  Counted counted{};

  Immediate() = default;
  // REQUIRES: can_be_immediate(call, *plan).
  Immediate(const CollectiveCall& call, std::shared_ptr<const Plan> plan, int world);
};

// It is a one-sided program that takes no memory, on the caller's own buffers, of the CPU, which
// are apart or the same.
bool can_be_immediate(const CollectiveCall& call, const Plan& plan);

struct AllReduceKey {
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  std::int64_t count = -1;  // of none
  std::uint64_t purpose = 0;

  bool operator==(const AllReduceKey&) const = default;
};

// The last few all_reduces of a group: a program has few sizes that are small, and finds its plan
// by comparing four words.
class ImmediateAllReduces {
 public:
  const Immediate* find(const AllReduceKey& key) const {
    for (const auto& [of, immediate] : last_) {
      if (of == key) return &immediate;
    }
    return nullptr;
  }
  // Does nothing for one that is here: what is refused while others are in flight comes again.
  void keep(const AllReduceKey& key, Immediate immediate) {
    if (find(key) != nullptr) return;
    last_[next_++ % last_.size()] = {key, std::move(immediate)};
  }

 private:
  std::array<std::pair<AllReduceKey, Immediate>, 8> last_;
  std::size_t next_ = 0;
};

// What has become of it. It is made for every small call, so what says nothing yet is not even
// zeroed.
struct Exchange {
  enum class State : std::uint8_t { refused, begun, over };
  State state = State::refused;         // then nothing has happened, and the rest says nothing
  std::shared_ptr<const Plan> whole{};  // the call's; null where it is over
  std::string_view algorithm;           // a constant; where it is over
  Channel channel;
  std::uint64_t window_turn;
  Walk at;  // where it has come to

  Exchange() {}  // NOLINT: members stay as they are
};

}  // namespace peal::comm
