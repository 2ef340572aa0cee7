// SPDX-License-Identifier: Apache-2.0
// Execution: the executor of one run of a program, a state machine that can be left and resumed. It
// follows the plan and never rewrites it: post the messages of a round, do its local steps, and
// when the messages are there, add what came to be added; then the next round. Long messages of
// collectives go in parts, on the CPU, and a part is added while the next ones are on their way. On
// the CPU rounds that are a combination (plan.h) are done as one. Where things lie,
// and what becomes of them before and after the rounds, it asks its Buffers (buffers.h). The
// transport's native collective is a run of one round.
//
// It runs where the transport moves messages. Over a stream-ordered one everything, kernels too,
// goes into the device's queue at once. It follows what the caller had queued when it was made, and
// is *handed over* when all that is left lies in queues: the host need not wait then. In a graph
// that is captured that is its end. Thread safety: one thread at a time (the engine's lock), but,
// once it is handed over, for order(), is_past() and may_begin().
#pragma once

#include <peal/comm/engine/buffers.h>
#include <peal/comm/engine/call.h>
#include <peal/comm/engine/immediate.h>
#include <peal/comm/engine/walk.h>
#include <peal/comm/schedule/plan.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace peal::comm {

class Recorder;
struct StepTimes;

class Execution {
 public:
  // `segment`: bytes that are copied at a time, where a program uses a part of a buffer before the
  // rest. `plan` is null for the transport's native collective. `window`: the group's, null where
  // it has none.
  Execution(Call&& call, std::shared_ptr<const Plan> plan, Transport& transport, Channel channel,
            CopyStreams& copies, std::size_t segment, Window* window);
  ~Execution();
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  // It is to go into the calling thread's current stream itself; false where it may not. Before
  // take_place(), and the thread waits until it is handed over.
  bool stay();
  // It comes after what the calling thread's current streams hold now. Once, before advance().
  void take_place();
  // It has come to there already (immediate.h). Before advance().
  void go_on_from(const Exchange& exchange);
  // Does what can be done without waiting. True once the operation is complete. Throws Error from
  // the transport with the round added; the execution is then dead.
  bool advance();
  // The same, until it is handed over; true once it is. What is left then is not looked at.
  bool hand_over();
  // After a failure: its messages are called back, as far as the transport can. Nothing else is
  // called then.
  void give_up();
  // It lies in a graph that the thread captures: its memory is the graph's, and its end is none of
  // the host's.
  void leave_capture();
  // It stands for the replay of a graph that the thread launches on its current stream in between:
  // it comes after the transport's queue, and what follows there comes after it.
  void begin_replay();
  void end_replay();
  // All that is left lies in queues of devices: the next execution over the transport may begin,
  // and order() may be called.
  bool handed_over() const { return state_ >= State::handed_over; }
  // Its first messages are posted: those of later operations come behind them.
  bool begun() const { return at_.in_round || at_.round > 0; }
  // The device has come to its end, whether or not advance() has found out. REQUIRES: handed over.
  bool is_past() const { return caller_.is_over(); }
  // What the calling thread's current streams get from now on comes after it.
  void order() const { caller_.order(); }
  // The device's queue has come to it, or it is of the CPU.
  bool may_begin() const { return caller_.may_begin(); }
  bool on_device() const { return place_.type != DeviceType::cpu; }
  bool stream_ordered() const { return transport_.stream_ordered(); }
  // Some of its tensors are copied from a device, or to one.
  bool stages() const { return buffers_.stages(); }
  // It takes its turn before the device's queue, and is not whole there yet.
  bool enters() const { return stream_ordered() && !handed_over(); }
  // It uses the group's window, which one after the other do, in the order of the calls: its first
  // advance() must come when it is its turn.
  bool one_sided() const { return plan_ != nullptr && plan_->one_sided; }
  // Its steps leave their times there, under this number of its own.
  void record(std::shared_ptr<Recorder> recorder, std::int32_t number);
  const Call& call() const { return call_; }
  const std::shared_ptr<const Plan>& plan() const { return plan_; }
  // That runs it, or `native`. While it is under way, it may still become another one.
  std::string algorithm() const {
    const Plan* const plan = now_;
    return plan != nullptr ? plan->name : "native";
  }
  std::size_t element() const { return buffers_.bytes(1); }  // bytes, on the wire
  // Grows with all that it does: rounds, messages, parts of its input that have come, its end.
  std::size_t progress() const;
  // "16 B from rank 1 in round 3", while it waits for messages.
  std::string waits_for() const;
  // A receive's: the rank that sent, once it is complete.
  int source() const { return source_; }

 private:
  // In this order. A captured one stays there.
  enum class State : std::uint8_t { made, runs, handed_over, captured, over };

  // Where it is put, over a transport of a device.
  Stream queue() const { return stays_in_ ? *stays_in_ : transport_.queue()->stream(); }
  bool quiet() const;
  const CollectiveCall& collective() const { return std::get<CollectiveCall>(call_); }
  const Round& round() const { return at_.plan->program.rounds[at_.round]; }
  bool run_native();
  void post_round();
  void post(const Step& step, Message message);
  void post_messages();
  bool goes_in_parts(std::size_t bytes) const;
  void add(const Step& step, std::int64_t at, std::int64_t count, const std::byte* from);
  void do_local_steps();
  void note_arrival();
  void finish_round();

  // As walk() asks for them.
  template <class Run>
  friend bool walk(Walk& at, Window* window, Run& run);
  bool combines() const { return !on_device(); }
  bool ready(std::size_t round) { return buffers_.arrived(round); }
  void combine(const Plan::Combination& all);
  void begin();
  bool is_over();
  void end();
  void goes_on();

  Call call_;
  std::shared_ptr<const Plan> plan_;
  std::atomic<const Plan*> now_;  // that one, or what goes on instead of it
  Transport& transport_;
  Window* window_;
  Channel channel_;
  Device place_;  // where the program runs, and messages lie
  CallerOrder caller_;
  std::optional<Stream> stays_in_;
  Buffers buffers_;
  State state_ = State::made;
  // Messages on their way, and what is added as soon as they have come.
  struct Posted {
    Ticket ticket;
    const Step* adds = nullptr;  // a part of that one's elements
    std::int64_t at = 0, count = 0;
    const std::byte* arrival = nullptr;
  };

  Walk at_{};                  // of the transport's native collective one round, without a plan
  bool begun_before_ = false;  // go_on_from()
  std::vector<Posted> posted_;
  std::size_t over_ = 0;  // of those
  bool held_ = false;     // one could not be called back
  std::vector<Message> messages_;
  int source_ = any_source;
  std::shared_ptr<Recorder> recorder_;  // null but under PEAL_TRACE
  std::int32_t number_ = 0;
  StepTimes* times_ = nullptr;  // of the round's steps; null where nobody records
};

}  // namespace peal::comm
