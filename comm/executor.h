// SPDX-License-Identifier: Apache-2.0
// Execution: one run of a program on real buffers, as a state machine that can be left and resumed.
// It follows the plan and never rewrites it: post the messages of a round, do its local steps, and
// when the messages are there, add what came to be added; then the next round.
//
// f16 and bf16 are reduced in f32: buffers are widened at the start and narrowed at the end, so
// that a sum is rounded once. avg divides, premul_sum scales, exactly once. Thread safety: one
// thread at a time (the engine's lock).
#pragma once

#include <peal/autograd/core/view.h>
#include <peal/comm/transport/transport.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace peal::comm {

class Recorder;
struct StepTimes;

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
  // Where `in` and `out` stand for pieces that lie elsewhere: what is copied into `in` at the
  // start, and out of `out` at the end. Pieces are the same on all ranks.
  std::vector<Piece> gathered{}, scattered{};
  // Point to point: "send" or "recv", with `peer` and `tag`; the collective's fields then say
  // nothing.
  std::string_view verb{};
  int peer = 0, tag = 0;
  bool point_to_point() const { return !verb.empty(); }
  DType dtype() const { return out.storage ? out.dtype : in.dtype; }
  bool reduces() const {
    if (point_to_point()) return false;
    return what == Collective::all_reduce || what == Collective::reduce ||
           what == Collective::reduce_scatter;
  }
};

// The call as the transport's own collective: reductions of f16 and bf16 travel as f32. Without
// buffers, which have no say in whether there is one; its counts are the call's.
NativeCall native_call(const Call& call);

// "all_reduce #17 (sum of 256 f32; bucket 3: fc1.weight, fc1.bias)"; the label says what it is for.
std::string describe(const Call& call, std::uint64_t sequence, std::string_view label);

// A program, and what running it takes.
struct Plan {
  explicit Plan(Program made, std::string name = "own");
  Program program;
  std::string name;           // of the algorithm
  std::int64_t arriving = 0;  // the most elements that come to be reduced in any one round
  // How much of each Buffer it touches, up to the last element, and the highest rank it talks to.
  // The constructor throws Error for steps that make no sense, whatever the buffers.
  std::int64_t extent[3] = {};
  int highest_peer = nobody;
  bool one_sided = false;  // touches memory of others
  bool from_any = false;   // has a receive from any source
};

class Execution {
 public:
  // `plan` is null for the transport's native collective.
  Execution(Call call, std::shared_ptr<const Plan> plan, Transport& transport, Channel channel);
  ~Execution();
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  // Does what can be done without waiting. True once the operation is complete. Throws Error from
  // the transport with the round added; the execution is then dead.
  bool advance();
  // Its steps leave their times there, under this number of its own.
  void record(std::shared_ptr<Recorder> recorder, std::int32_t number);
  const Call& call() const { return call_; }
  const std::shared_ptr<const Plan>& plan() const { return plan_; }
  std::size_t element() const { return element_; }  // bytes, on the wire
  std::size_t rounds_done() const { return round_ + (done_ ? 1 : 0); }
  // "16 B from rank 1 in round 3", while it waits for messages.
  std::string waits_for() const;
  // A receive's: the rank that sent, once it is complete.
  int source() const { return source_; }

 private:
  void prepare();
  void start_round();
  void note_arrival();
  void finish_round();
  void conclude();
  std::byte* at(const Span& span) const;

  Call call_;
  std::shared_ptr<const Plan> plan_;
  Transport& transport_;
  Channel channel_;
  DType dtype_;  // of the wire: f32 where f16 or bf16 is reduced
  std::size_t element_ = 1;
  std::byte* in_ = nullptr;
  std::byte* out_ = nullptr;
  StorageRef wide_in_, wide_out_, scratch_, arrivals_;
  std::vector<Message> messages_;
  int source_ = any_source;
  std::size_t round_ = 0;
  std::optional<Ticket> ticket_;
  bool started_ = false, done_ = false;
  std::shared_ptr<Recorder> recorder_;  // null but under PEAL_TRACE
  std::int32_t number_ = 0;
  StepTimes* times_ = nullptr;  // of the round's steps; null where nobody records
};

}  // namespace peal::comm
