// SPDX-License-Identifier: Apache-2.0
// Calls: what users ask a group for, in their own terms, as values. An operation (operation.h) is
// one of them under way.
#pragma once

#include <peal/autograd/core/view.h>
#include <peal/comm/transport/transport.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace peal::comm {

// A user's tensor, or a part of it, and where it lies in the buffer that carries it.
struct Piece {
  View data;
  std::int64_t at = 0;  // elements
};

// What to run: the call in the user's terms.
struct Call {
  Collective what = Collective::barrier;
  View in{}, out{};  // may alias as schedule.h says; empty where the rank has none
  ReduceOp op = ReduceOp::sum;
  double factor = 1;  // premul_sum
  int root = 0;
  std::vector<std::int64_t> counts{};
  std::uint64_t purpose = 0;  // tells it from others like it; equal on all ranks
  // Where `in` and `out` stand for pieces that lie elsewhere: what is copied into `in` at the
  // start, and out of `out` at the end. Pieces are the same on all ranks.
  std::vector<Piece> gathered{}, scattered{};
  // Point to point: "send" or "recv", with `peer` and `tag`; the collective's fields then say
  // nothing.
  std::string_view verb{};
  int peer = 0, tag = 0;
  std::size_t replayed = 0;  // a replay of so many that a graph has captured (captured.h)
  bool point_to_point() const { return !verb.empty(); }
  DType dtype() const { return out.storage ? out.dtype : in.dtype; }
  bool reduces() const {
    if (point_to_point()) return false;
    return what == Collective::all_reduce || what == Collective::reduce ||
           what == Collective::reduce_scatter;
  }
};

// The call as the transport's own collective: reductions of f16 and bf16 travel as f32, but on a
// device. Without buffers, which have no say in whether there is one; its counts are the call's.
NativeCall native_call(const Call& call, DeviceType where = DeviceType::cpu);

// "all_reduce #17 (sum of 256 f32; bucket 3: fc1.weight, fc1.bias)"; the label says what it is for.
std::string describe(const Call& call, std::uint64_t sequence, std::string_view label);

}  // namespace peal::comm
