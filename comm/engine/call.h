// SPDX-License-Identifier: Apache-2.0
// Calls: what users ask a group for, in their own terms, as values: a collective, a message to or
// from one rank, or the replay of a graph that has captured collectives. An operation (operation.h)
// is one of them under way.
#pragma once

#include <peal/autograd/core/view.h>
#include <peal/comm/record/operation_counters.h>
#include <peal/comm/schedule/plan.h>
#include <peal/comm/transport/transport.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace peal::comm {

// A user's tensor, or a part of it, and where it lies in the buffer that carries it.
struct Piece {
  View data;
  std::int64_t at = 0;  // elements
};

struct CollectiveCall {
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

  DType dtype() const { return out.storage ? out.dtype : in.dtype; }
  bool reduces() const { return is_reduction(what); }
  // Of the group, not of this rank alone.
  std::int64_t elements() const;
  // Of a rank of a world of so many, equal on all: what PEAL_ALGO's ranges speak of, and counters.
  std::int64_t bytes(int world) const;
  // A broadcast reads the root's input alone, and in place it leaves that as it is.
  bool reads_in(int rank) const { return what != Collective::broadcast || rank == root; }
  bool writes_out(int rank) const;
};

// Of memory to write, once that is over: a version, where it was written; and that all ranks have
// these values of a broadcast, the root too, which keeps what it had.
void count_written(const StorageRef& storage, bool written, bool broadcast);

// The two overlap: in == out + this many elements.
std::optional<std::int64_t> in_place(const View& in, const View& out);

// Point to point.
struct MessageCall {
  Direction direction = Direction::send;
  View data{};
  int peer = 0;  // of a receive also any_source
  int tag = 0;

  bool sends() const { return direction == Direction::send; }
  std::string_view verb() const { return sends() ? "send" : "recv"; }
};

// Of a graph with so many collectives (captured.h).
struct ReplayCall {
  std::size_t collectives = 0;
};

using Call = std::variant<CollectiveCall, MessageCall, ReplayCall>;

// Messages have no number among the calls of their group; the others do.
inline bool is_message(const Call& call) { return std::holds_alternative<MessageCall>(call); }

// The call as the transport's own collective: reductions of f16 and bf16 travel as f32, but on a
// device. Without buffers, which have no say in whether there is one; its counts are the call's.
NativeCall native_call(const CollectiveCall& call, DeviceType where = DeviceType::cpu);

// On the CPU its input is multiplied in another type than the call's, and so travels in that.
bool scales_widened(const CollectiveCall& call);

// "all_reduce #17 (sum of 256 f32; bucket 3: fc1.weight, fc1.bias)"; the label says what it is for.
std::string describe(const CollectiveCall& call, std::uint64_t sequence, std::string_view label);
// "send to rank 3 (256 f32, tag 0)"
std::string describe(const MessageCall& call);
// "replay #17 of a graph with 4 collectives, the first ..."; the label is the first.
std::string describe(const ReplayCall& call, std::uint64_t sequence, std::string_view label);
std::string describe(const Call& call, std::uint64_t sequence, std::string_view label);

// How each rank of a world of so many counts it.
struct Counted {
  OperationCounters::Kind kind;
  std::uint64_t bytes;
};
Counted counted(const CollectiveCall& call, int world);
Counted counted(const Call& call, int world);

// A hash of what all ranks must agree on: collective, type, reduction, root, counts. Ranks that
// disagree use different channels, so their messages never meet. Of messages the type alone: sizes
// are compared when they come.
std::uint64_t signature(const CollectiveCall& call);
std::uint64_t signature(const MessageCall& call);

// Of one step.
std::shared_ptr<const Plan> plan_of(const MessageCall& message);

}  // namespace peal::comm
