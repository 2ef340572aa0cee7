// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/engine/execution.h>
#include <peal/comm/record/recorder.h>
#include <peal/comm/reduce/table.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace peal::comm {
namespace {

DType wire_type(const Call& call) {
  return call.reduces() ? computed_in(call.dtype()) : call.dtype();
}

}  // namespace

NativeCall native_call(const Call& call, DeviceType where) {
  const DType dtype = where == DeviceType::cpu ? wire_type(call) : call.dtype();
  return {call.what, dtype, call.op, call.root, call.counts, nullptr, nullptr, call.factor};
}

std::string describe(const Call& call, std::uint64_t sequence, std::string_view label) {
  if (call.point_to_point()) {
    const std::string peer = call.peer == any_source ? "any rank" : concat("rank ", call.peer);
    return concat(call.verb, call.verb == "send" ? " to " : " from ", peer, " (",
                  call.in.count + call.out.count, " ", call.dtype(), ", tag ", call.tag, ")");
  }
  std::string text = concat(name(call.what), " #", sequence);
  if (call.replayed > 0) {
    return concat("replay #", sequence, " of a graph with ", call.replayed,
                  " collectives, the first ", label);
  }
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
                     Channel channel, CopyStreams& copies, std::size_t segment)
    : call_(std::move(call)),
      plan_(std::move(plan)),
      transport_(transport),
      channel_(channel),
      place_(transport.device()),
      dtype_(plan_ ? wire_type(call_) : native_call(call_, place_.type).dtype),
      scaled_(!plan_ && transport.native() != nullptr &&
              transport.native()->scales(native_call(call_, place_.type))),
      element_(size_of(dtype_)),
      segment_(segment),
      copies_(copies) {}

void Execution::take_place() {
  bool away = false;
  const auto follow = [&](const View& view) {
    caller_.follow(view.device());
    away = away || view.device().type != place_.type;
  };
  for (const View* view : {&call_.in, &call_.out}) {
    if (view->storage) follow(*view);
  }
  for (const Piece& piece : call_.gathered) follow(piece.data);
  for (const Piece& piece : call_.scattered) follow(piece.data);
  if (away) staging_ = std::make_unique<Staging>(copies_, caller_);
}

void Execution::record(std::shared_ptr<Recorder> recorder, std::int32_t number) {
  recorder_ = std::move(recorder);
  number_ = number;
}

void Execution::start_round() {
  if (recorder_) {
    times_ = recorder_->begin_round(number_, round_, plan_->program.rounds[round_]);
  }
  messages_.clear();
  messages_.reserve(plan_->program.rounds[round_].size());
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
  const WireKernels& kernels = wire_kernels(place_);
  StepTimes* times = times_;
  for (const Step& step : plan_->program.rounds[round_]) {
    const bool timed = times && (step.kind == Kind::copy || step.kind == Kind::reduce);
    if (timed) times->moves = Recorder::now();
    if (step.kind == Kind::copy) {
      move(at(step.dst), at(step.src), static_cast<std::size_t>(step.dst.count) * element_);
    } else if (step.kind == Kind::reduce) {
      kernels.reduce(dtype_, call_.op, at(step.dst), at(step.src), step.dst.count);
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
  const WireKernels& kernels = wire_kernels(place_);
  const std::byte* arrival = arrivals_ ? arrivals_->data() : nullptr;
  StepTimes* times = times_;
  for (const Step& step : plan_->program.rounds[round_]) {
    if (step.kind == Kind::recv_reduce) {
      kernels.reduce(dtype_, call_.op, at(step.dst), arrival, step.dst.count);
      arrival += static_cast<std::size_t>(step.dst.count) * element_;
      if (times) times->end = Recorder::now();
    }
    if (times) ++times;
  }
}

std::string Execution::waits_for() const {
  if (started_ && !ticket_ && taken_ < down_.size()) return "its own data from the device";
  if (handed_over_) return "the device's queue";
  if (!ticket_) return {};
  const std::string messages = describe(transport_.open(*ticket_));
  const bool rounds = !messages.empty() && !call_.point_to_point();
  return rounds ? concat(messages, " in round ", round_) : messages;
}

// Until all rounds are done, or something must be waited for: then false.
bool Execution::run() {
  const std::size_t rounds = plan_ ? plan_->program.rounds.size() : 1;
  while (round_ < rounds) {
    if (!ticket_ && !in_round_) {
      if (!arrived(round_)) return false;
      in_round_ = true;
      if (plan_) {
        start_round();
      } else {
        NativeCall native = native_call(call_, place_.type);
        native.in = in_;
        native.out = out_;
        ticket_ = transport_.native()->start(native);
      }
    }
    if (ticket_) {
      if (!transport_.test(*ticket_)) return false;
      ticket_.reset();
    }
    in_round_ = false;
    if (plan_) finish_round();
    hand_back(round_++);
  }
  return arrived(rounds);
}

bool Execution::hand_over() {
  if (handed_over_) return true;
  try {
    std::optional<StreamGuard> guard;
    if (on_device()) guard.emplace(transport_.queue()->stream());
    if (!started_) prepare();
    if (!run()) return false;
    conclude();
  } catch (const std::exception& error) {
    if (!plan_) throw;
    fail(concat("round ", round_, ": ", error.what()));
  }
  return true;
}

bool Execution::advance() {
  if (done_) return true;
  if (!hand_over() || !caller_.is_over()) return false;
  end();
  return true;
}

void Execution::begin_replay() {
  Event last;  // of the group's, in the device's queue
  last.record(transport_.queue()->stream());
  caller_.follow(place_);
  current_stream(place_).wait(last);
}

void Execution::end_replay() {
  started_ = handed_over_ = true;
  caller_.leave(current_stream(place_));
  const StreamGuard guard(transport_.queue()->stream());
  caller_.order();
}

}  // namespace peal::comm
