// SPDX-License-Identifier: Apache-2.0
// Execution: one run of a program on real buffers, as a state machine that can be left and resumed.
// It follows the plan and never rewrites it: post the messages of a round, do its local steps, and
// when the messages are there, add what came to be added; then the next round.
//
// It runs where the transport moves messages. Over a transport of the CPU, tensors on a device are
// copied to page-locked memory and back, segment by segment, beside the rounds (segments.h); over a
// stream-ordered one everything, kernels too, goes into the device's queue at once. Either way the
// execution follows what the caller had queued when it was made, and is *handed over* when all that
// is left lies in queues: the host need not wait then.
//
// f16 and bf16 are reduced in f32: buffers are widened at the start and narrowed at the end, so
// that a sum is rounded once; a device's native collectives do as the library below does. avg
// divides, premul_sum scales, exactly once. Thread safety: one thread at a time (the engine's
// lock), but for order().
#pragma once

#include <peal/autograd/core/view.h>
#include <peal/comm/engine/staging.h>
#include <peal/comm/schedule/segments.h>
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
  // Bytes that are copied at a time, where a program uses a part of a buffer before the rest.
  static constexpr std::size_t segment_bytes = std::size_t{4} << 20;

  // `plan` is null for the transport's native collective.
  Execution(Call call, std::shared_ptr<const Plan> plan, Transport& transport, Channel channel,
            CopyStreams& copies, std::size_t segment);
  ~Execution();
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  // It comes after what the calling thread's current streams hold now. Once, before advance().
  void take_place();
  // Does what can be done without waiting. True once the operation is complete. Throws Error from
  // the transport with the round added; the execution is then dead.
  bool advance();
  // The same, until it is handed over; true once it is. What is left then is not looked at.
  bool hand_over();
  // It lies in a graph that the thread captures: its memory is the graph's, and its end is none of
  // the host's.
  void leave_capture() {
    caller_ = {};
    captured_ = true;
  }
  // It stands for the replay of a graph that the thread launches on its current stream in between:
  // it comes after the transport's queue, and what follows there comes after it.
  void begin_replay();
  void end_replay();
  // All that is left lies in queues of devices: the next execution over the transport may begin,
  // and order() may be called.
  bool handed_over() const { return handed_over_; }
  // Its first messages are posted: those of later operations come behind them.
  bool begun() const { return in_round_ || round_ > 0; }
  // The device has come to its end, whether or not advance() has found out.
  bool is_over() const { return handed_over_ && caller_.is_over(); }
  // What the calling thread's current streams get from now on comes after it.
  void order() const { caller_.order(); }
  // The device's queue has come to it, or it is of the CPU.
  bool may_begin() const { return caller_.may_begin(); }
  bool on_device() const { return place_.type != DeviceType::cpu; }
  bool stream_ordered() const { return transport_.stream_ordered(); }
  // It takes its turn before the device's queue, and is not whole there yet.
  bool enters() const { return stream_ordered() && !handed_over_; }
  // Its steps leave their times there, under this number of its own.
  void record(std::shared_ptr<Recorder> recorder, std::int32_t number);
  const Call& call() const { return call_; }
  const std::shared_ptr<const Plan>& plan() const { return plan_; }
  std::size_t element() const { return element_; }  // bytes, on the wire
  std::size_t rounds_done() const { return round_ + taken_ + (done_ ? 1 : 0); }
  // "16 B from rank 1 in round 3", while it waits for messages.
  std::string waits_for() const;
  // A receive's: the rank that sent, once it is complete.
  int source() const { return source_; }

 private:
  // A part of a buffer that is copied, and the round that it waits for or is waited for by.
  struct Copied {
    Block block;  // elements
    std::size_t round;
    std::size_t mark = 0;  // of Staging, for copies down
  };

  // executor_buffers.cpp: where the buffers lie, and what happens before and after the rounds.
  void prepare();
  void stage();
  void widen(const Block& block);
  void finish(const Block& block);
  bool arrived(std::size_t round);
  void hand_back(std::size_t round);
  void conclude();
  void end();
  std::byte* at(const Span& span) const;
  StorageRef fresh(std::int64_t elements) const;
  void move(std::byte* to, const std::byte* from, std::size_t bytes) const;
  bool quiet() const;
  bool reads_in() const;
  bool writes_out() const;

  // executor.cpp: the rounds.
  bool run();
  void start_round();
  void note_arrival();
  void finish_round();

  Call call_;
  std::shared_ptr<const Plan> plan_;
  Transport& transport_;
  Channel channel_;
  Device place_;  // where the program runs, and messages lie
  DType dtype_;   // of the wire: f32 where f16 or bf16 is reduced
  bool scaled_;   // a native collective that divides and multiplies itself
  std::size_t element_ = 1;
  std::byte* in_ = nullptr;  // the program's buffers
  std::byte* out_ = nullptr;
  std::byte* own_in_ = nullptr;  // the same in the call's type: the call's, or staged
  std::byte* own_out_ = nullptr;
  StorageRef wide_in_, wide_out_, scratch_, arrivals_, staged_in_, staged_out_;
  CallerOrder caller_;
  std::unique_ptr<Staging> staging_;  // null where nothing lies elsewhere
  std::size_t segment_;               // bytes
  CopyStreams& copies_;
  std::vector<Copied> down_, up_;  // in the order of rounds
  std::size_t taken_ = 0, given_ = 0;
  std::vector<Message> messages_;
  int source_ = any_source;
  std::size_t round_ = 0;
  std::optional<Ticket> ticket_;
  bool started_ = false, in_round_ = false, handed_over_ = false, done_ = false, captured_ = false;
  std::shared_ptr<Recorder> recorder_;  // null but under PEAL_TRACE
  std::int32_t number_ = 0;
  StepTimes* times_ = nullptr;  // of the round's steps; null where nobody records
};

}  // namespace peal::comm
