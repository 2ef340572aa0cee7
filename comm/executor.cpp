// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/executor.h>
#include <peal/comm/recorder.h>
#include <peal/comm/reduce/cpu/reduce.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <mutex>
#include <utility>

namespace peal::comm {
namespace {

StorageRef cpu_bytes(std::int64_t bytes) {
  return Storage::allocate(static_cast<std::size_t>(bytes), Device{});
}

void copy_bytes(const View& to, const View& from) {
  if (from.count != 0) std::memcpy(to.data(), from.data(), from.bytes());
}

DType wire_type(const Call& call) {
  return call.reduces() ? computed_in(call.dtype()) : call.dtype();
}

// Memory that a library below may still write, after a failure. Never freed.
void quarantine(std::vector<StorageRef> memory) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<StorageRef>;
  std::lock_guard lock(mutex);
  std::move(memory.begin(), memory.end(), std::back_inserter(kept));
}

}  // namespace

NativeCall native_call(const Call& call) {
  return {call.what, wire_type(call), call.op, call.root, call.counts, nullptr, nullptr};
}

std::string describe(const Call& call, std::uint64_t sequence, std::string_view label) {
  if (call.point_to_point()) {
    const std::string peer = call.peer == any_source ? "any rank" : concat("rank ", call.peer);
    return concat(call.verb, call.verb == "send" ? " to " : " from ", peer, " (",
                  call.in.count + call.out.count, " ", call.dtype(), ", tag ", call.tag, ")");
  }
  std::string text = concat(name(call.what), " #", sequence);
  if (call.what == Collective::barrier) return text;
  std::int64_t count = call.counts.empty() ? std::max(call.in.count, call.out.count) : 0;
  for (const std::int64_t part : call.counts) count += part;
  text += " (";
  if (call.reduces()) text += concat(name(call.op), " of ");
  text += concat(count, " ", call.dtype());
  if (!call.gathered.empty()) text += concat(" in ", call.gathered.size(), " pieces");
  if (call.root != 0) text += concat(", root ", call.root);
  if (!label.empty()) text += concat("; ", label);
  return text + ")";
}

Plan::Plan(Program made, std::string name) : program(std::move(made)), name(std::move(name)) {
  for (const Round& round : program.rounds) {
    std::int64_t sum = 0;
    for (const Step& step : round) {
      if (step.kind == Kind::recv_reduce) sum += step.dst.count;
      const bool local = step.kind == Kind::copy || step.kind == Kind::reduce;
      PEAL_CHECK(local || step.peer >= 0 || (step.kind == Kind::recv && step.peer == any_source),
                 "a program has a ", comm::name(step.kind), " with rank ", step.peer);
      PEAL_CHECK(!local || step.dst.count == step.src.count, "a program has a ",
                 comm::name(step.kind), " of ", step.src.count, " elements to ", step.dst.count);
      highest_peer = std::max(highest_peer, step.peer);
      from_any = from_any || (!local && step.peer == any_source);
      one_sided = one_sided || step.kind == Kind::signal || step.kind == Kind::await;
      for (const Span& span : {step.dst, step.src}) {
        PEAL_CHECK(span.at >= 0 && span.count >= 0 &&
                       span.at <= std::numeric_limits<std::int64_t>::max() - span.count,
                   "a program has a span of ", span.count, " elements at ", span.at);
        one_sided = one_sided || span.owner != self;
        std::int64_t& extent_of = extent[static_cast<int>(span.buffer)];
        if (span.count > 0) extent_of = std::max(extent_of, span.at + span.count);
      }
    }
    arriving = std::max(arriving, sum);
  }
}

Execution::Execution(Call call, std::shared_ptr<const Plan> plan, Transport& transport,
                     Channel channel)
    : call_(std::move(call)),
      plan_(std::move(plan)),
      transport_(transport),
      channel_(channel),
      dtype_(wire_type(call_)),
      element_(size_of(dtype_)) {}

Execution::~Execution() {
  if (ticket_ && !transport_.cancel(*ticket_)) {
    quarantine({call_.in.storage, call_.out.storage, wide_in_, wide_out_, scratch_, arrivals_});
  }
}

void Execution::record(std::shared_ptr<Recorder> recorder, std::int32_t number) {
  recorder_ = std::move(recorder);
  number_ = number;
}

void Execution::prepare() {
  const auto size = static_cast<std::int64_t>(element_);
  in_ = call_.in.data();
  out_ = call_.out.data();
  for (const Piece& piece : call_.gathered) {
    copy_bytes(call_.in.part(piece.at, piece.data.count), piece.data);
  }
  if (dtype_ !=
      call_.dtype()) {  // out of place from here on: `in` and `out` get wide memory of their own
    wide_in_ = cpu_bytes(call_.in.count * size);
    wide_out_ = cpu_bytes(call_.out.count * size);
    in_ = wide_in_->data();
    out_ = wide_out_->data();
    widen_cpu(call_.dtype(), reinterpret_cast<float*>(in_), call_.in.data(), call_.in.count);
  } else if (call_.op == ReduceOp::premul_sum && in_ != out_) {  // never write the user's input
    wide_in_ = cpu_bytes(call_.in.count * size);
    std::memcpy(wide_in_->data(), in_, call_.in.bytes());
    in_ = wide_in_->data();
  }
  if (call_.op == ReduceOp::premul_sum) scale_cpu(dtype_, in_, call_.factor, call_.in.count);
  if (plan_) {
    const std::int64_t scratch = plan_->program.scratch;
    if (scratch > 0) scratch_ = cpu_bytes(scratch * size);
    if (plan_->arriving > 0) arrivals_ = cpu_bytes(plan_->arriving * size);
  }
  started_ = true;
}

std::byte* Execution::at(const Span& span) const {
  if (span.count == 0) return nullptr;  // of a buffer that may not be there
  std::byte* base = span.buffer == Buffer::in    ? in_
                    : span.buffer == Buffer::out ? out_
                                                 : scratch_->data();
  return base + span.at * static_cast<std::int64_t>(element_);
}

void Execution::start_round() {
  if (recorder_) {
    times_ = recorder_->begin_round(number_, round_, plan_->program.rounds[round_]);
  }
  messages_.clear();
  std::byte* arrival = arrivals_ ? arrivals_->data() : nullptr;
  for (const Step& step : plan_->program.rounds[round_]) {
    switch (step.kind) {
      case Kind::send:
        messages_.push_back({Direction::send, step.peer, at(step.src),
                             static_cast<std::size_t>(step.src.count) * element_});
        break;
      case Kind::recv:
        messages_.push_back({Direction::recv, step.peer, at(step.dst),
                             static_cast<std::size_t>(step.dst.count) * element_, &source_});
        break;
      case Kind::recv_reduce: {
        const std::size_t bytes = static_cast<std::size_t>(step.dst.count) * element_;
        messages_.push_back({Direction::recv, step.peer, arrival, bytes});
        arrival += bytes;
        break;
      }
      default:
        break;
    }
  }
  if (!messages_.empty()) ticket_ = transport_.post(channel_, messages_);
  StepTimes* times = times_;
  for (const Step& step : plan_->program.rounds[round_]) {
    const bool timed = times && (step.kind == Kind::copy || step.kind == Kind::reduce);
    if (timed) times->moves = Recorder::now();
    if (step.kind == Kind::copy) {
      std::byte* dst = at(step.dst);
      const std::byte* src = at(step.src);
      if (dst != src) std::memmove(dst, src, static_cast<std::size_t>(step.dst.count) * element_);
    } else if (step.kind == Kind::reduce) {
      reduce_cpu(dtype_, call_.op, at(step.dst), at(step.src), step.dst.count);
    } else if (step.kind == Kind::signal || step.kind == Kind::await) {
      fail(concat("the ", transport_.name(),
                  " transport has no symmetric memory for one-sided steps"));
    }
    if (timed) times->end = Recorder::now();
    if (times) ++times;
  }
}

// A round's messages are known to be over together.
void Execution::note_arrival() {
  const std::int64_t now = Recorder::now();
  StepTimes* times = times_;
  for (const Step& step : plan_->program.rounds[round_]) {
    if (step.kind != Kind::copy && step.kind != Kind::reduce) times->end = now;
    if (step.kind == Kind::recv && step.peer == any_source) times->peer = source_;
    ++times;
  }
}

void Execution::finish_round() {
  if (times_) note_arrival();
  const std::byte* arrival = arrivals_ ? arrivals_->data() : nullptr;
  StepTimes* times = times_;
  for (const Step& step : plan_->program.rounds[round_]) {
    if (step.kind == Kind::recv_reduce) {
      reduce_cpu(dtype_, call_.op, at(step.dst), arrival, step.dst.count);
      arrival += static_cast<std::size_t>(step.dst.count) * element_;
      if (times) times->end = Recorder::now();
    }
    if (times) ++times;
  }
  ++round_;
}

void Execution::conclude() {
  if (call_.op == ReduceOp::avg && call_.reduces()) {
    divide_cpu(dtype_, out_, transport_.world(), call_.out.count);
  }
  if (dtype_ != call_.dtype()) {
    narrow_cpu(call_.dtype(), call_.out.data(), reinterpret_cast<const float*>(out_),
               call_.out.count);
  }
  if (call_.out.storage) call_.out.storage->bump_version();
  for (const Piece& piece : call_.scattered) {
    copy_bytes(piece.data, call_.out.part(piece.at, piece.data.count));
    if (piece.data.storage) piece.data.storage->bump_version();
  }
  wide_in_ = wide_out_ = scratch_ = arrivals_ = nullptr;
  if (recorder_) recorder_->end(number_);
  done_ = true;
}

std::string Execution::waits_for() const {
  if (!ticket_) return {};
  const std::string messages = describe(transport_.open(*ticket_));
  const bool rounds = !messages.empty() && !call_.point_to_point();
  return rounds ? concat(messages, " in round ", round_) : messages;
}

bool Execution::advance() {
  if (done_) return true;
  try {
    if (!started_) {
      prepare();
      if (!plan_) {
        NativeCall native = native_call(call_);
        native.in = in_;
        native.out = out_;
        ticket_ = transport_.start_native(native);
      } else if (!plan_->program.rounds.empty()) {
        start_round();
      }
    }
    while (true) {
      if (ticket_) {
        if (!transport_.test(*ticket_)) return false;
        ticket_.reset();
      }
      if (!plan_ || plan_->program.rounds.empty()) break;
      finish_round();
      if (round_ == plan_->program.rounds.size()) break;
      start_round();
    }
  } catch (const Error& error) {
    if (!plan_) throw;
    fail(concat("round ", round_, ": ", error.what()));
  }
  conclude();
  return true;
}

}  // namespace peal::comm
