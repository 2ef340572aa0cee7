// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/engine/immediate.h>
#include <peal/comm/engine/lane.h>
#include <peal/comm/engine/streamed_copies.h>
#include <peal/comm/reduce/table.h>

#include <cstring>
#include <exception>
#include <utility>

namespace peal::comm {
namespace {

constexpr std::size_t least_outgrowing = std::size_t{64} << 10;  // not to be asked about

// A run of a program (walk.h) that consists of signals, copies and combinations.
struct ImmediateRun {
  const Immediate& what;
  const Spans& spans;
  Walk& at;
  Window& window;
  std::int64_t divisor;
  bool outgrows;  // the caches
  bool streams;   // and sums go round them

  static constexpr bool combines() { return true; }
  static constexpr bool ready(std::size_t) { return true; }
  static constexpr bool is_over() { return true; }
  static constexpr void end() {}
  static constexpr void goes_on() {}
  void begin() const {
    for (const Step& step : at.plan->program.rounds[at.round]) {
      if (step.kind == Kind::signal) window.signal(step.peer);
      if (step.kind != Kind::copy) continue;
      std::byte *const to = spans.at(step.dst), *const from = spans.at(step.src);
      if (outgrows && may_stream(step)) {
        copy_streaming(to, from, spans.bytes(step.src.count));
      } else if (to != from && step.src.count > 0) {
        std::memcpy(to, from, spans.bytes(step.src.count));
      }
    }
  }
  void combine(const Plan::Combination& all) const {
    thread_local CombinedMemory memory;
    memory.find(all, spans);
    wire_kernels(Device{}).combine(what.dtype, what.op, memory.targets, memory.sources,
                                   all.targets.front().count, streams, divisor);
  }
};

bool is_plain(const View& view) { return !view.storage || view.device().type == DeviceType::cpu; }

}  // namespace

Immediate::Immediate(const CollectiveCall& call, std::shared_ptr<const Plan> its_plan, int world)
    : plan(std::move(its_plan)),
      dtype(call.dtype()),
      op(call.op),
      averages(call.op == ReduceOp::avg && call.reduces()),
      signature(comm::signature(call)),
      counted(comm::counted(call, world)) {
  const Finished all = finished(call, signature);
  words[0] = all.call[0];
  words[1] = all.call[1];
}

bool can_be_immediate(const CollectiveCall& call, const Plan& plan) {
  const auto runs = [](const Plan& each) {
    return each.one_sided && !each.sends && !each.entry.empty() && each.at_once &&
           each.scratch == 0 && each.all_combined;
  };
  return runs(plan) && (!plan.otherwise || runs(*plan.otherwise)) && call.gathered.empty() &&
         call.scattered.empty() && call.op != ReduceOp::premul_sum && is_plain(call.in) &&
         is_plain(call.out);
}

Exchange Lane::exchange(const Immediate& what, const std::byte* in, std::byte* out,
                        std::size_t bytes, std::string_view label) {
  Exchange now;
  const bool alone = queue_.empty() && broken_.empty() && !released_ && !device_transport_ &&
                     !recorder_ && window_turns_ == window_turn_ && !control_->is_poisoned();
  if (!alone) return now;
  now.channel = number(what.signature, &now.window_turn);
  now.state = Exchange::State::begun;
  now.at = {what.plan.get(), 0, 0, false, 0};
  const std::size_t element = size_of(what.dtype);
  Spans spans(window_.get(), transport_->rank(), element);
  spans.set(Buffer::in, const_cast<std::byte*>(in));  // which no program writes
  spans.set(Buffer::out, out);
  const Finished finished{now.channel.signature, {what.words[0], what.words[1]}};
  const bool outgrows = bytes >= least_outgrowing && outgrows_caches(bytes, window_->ranks());
  ImmediateRun run{.what = what,
                   .spans = spans,
                   .at = now.at,
                   .window = *window_,
                   .divisor = what.averages ? transport_->world() : 1,
                   .outgrows = outgrows,
                   .streams = in != out && outgrows};
  try {
    window_->begin(*now.at.plan, element, now.channel.signature, in, out);
    if (walk(now.at, window_.get(), run)) {
      ++window_turn_;
      control_->finished(id_, now.channel.sequence, finished);
      control_->flight().over(id_, now.channel.sequence, finished, label);
      counters_.note_call(what.counted.kind, what.counted.bytes);
      now.algorithm = now.at.plan->entry;
      now.state = Exchange::State::over;
    } else {
      now.whole = what.plan;
    }
  } catch (const std::exception& error) {  // the others go on without it
    FlightRecorder& flight = control_->flight();
    flight.end(flight.begin(id_, now.channel.sequence, finished, label), FlightState::failed);
    counters_.note_call(what.counted.kind, what.counted.bytes);
    counters_.note_failure(what.counted.kind);
    broken_ = concat("[comm] ", who_, ", ", describe(finished, now.channel.sequence), ", round ",
                     now.at.round, ": ", error.what());
    control_->poison(broken_);
    fail(broken_);
  }
  return now;
}

}  // namespace peal::comm
