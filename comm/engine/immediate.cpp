// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/engine/immediate.h>
#include <peal/comm/engine/lane.h>
#include <peal/comm/reduce/table.h>
#include <peal/comm/schedule/mix.h>

#include <cstring>
#include <exception>
#include <utility>
#include <vector>

namespace peal::comm {
namespace {

// Where the spans of a program lie, for one call.
class Spans {
 public:
  Spans(const Window& window, int rank, std::size_t element, const std::byte* in, std::byte* out)
      : window_(window),
        rank_(rank),
        element_(static_cast<std::int64_t>(element)),
        in_(in),
        out_(out) {}

  const std::byte* read(const Span& span) const {
    const bool own = span.owner == self && span.buffer == Buffer::in;
    return own ? in_ + span.at * element_ : write(span);
  }
  std::byte* write(const Span& span) const {
    if (span.count == 0) return nullptr;
    std::byte* begin = out_;
    if (is_shared(span)) {
      begin = window_.reach(span.owner == self ? rank_ : span.owner, span.buffer);
      PEAL_CHECK(begin != nullptr, name(span.buffer), " of rank ", span.owner,
                 " is out of this rank's reach");
    }
    return begin + span.at * element_;
  }
  std::size_t bytes(const Span& span) const {
    return static_cast<std::size_t>(span.count * element_);
  }

 private:
  const Window& window_;
  int rank_;
  std::int64_t element_;
  const std::byte* in_;
  std::byte* out_;
};

bool is_plain(const View& view) { return !view.storage || view.device().type == DeviceType::cpu; }

}  // namespace

Immediate::Immediate(const CollectiveCall& call, std::shared_ptr<const Plan> its_plan)
    : plan(std::move(its_plan)),
      dtype(call.dtype()),
      op(call.op),
      signature(comm::signature(call)) {
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
                        std::size_t bytes) {
  Exchange now;
  const bool alone = queue_.empty() && broken_.empty() && !released_ && !device_transport_ &&
                     !recorder_ && !control_->poisoned();
  if (!alone) return now;
  {
    const std::lock_guard lock(numbers_);
    if (window_turns_ != window_turn_) return now;
    mix(history_, what.signature);
    now.channel = {sequence_++, history_};
    now.window_turn = window_turns_++;
  }
  now.state = Exchange::State::begun;
  now.plan = what.plan.get();
  try {
    window_->begin(*now.plan, size_of(what.dtype), now.channel.signature, in, out);
    go_on(what, now, in, out, bytes);
    if (now.state == Exchange::State::begun) now.whole = what.plan;
  } catch (const std::exception& error) {  // the others go on without it
    broken_ = concat("[comm] ", who_, ", number ", now.channel.sequence, ", round ", now.round,
                     ": ", error.what());
    control_->poison(broken_);
    fail(broken_);
  }
  return now;
}

void Lane::go_on(const Immediate& what, Exchange& now, const std::byte* in, std::byte* out,
                 std::size_t bytes) {
  const Spans at(*window_, transport_->rank(), size_of(what.dtype), in, out);
  const bool streams = in != out && bytes >= streaming_bytes;
  const auto divisor = what.op == ReduceOp::avg ? transport_->world() : 1;
  for (; now.round < now.plan->program.rounds.size(); now.awaited = 0) {
    const auto& combinations = now.plan->combinations;
    if (now.combination < combinations.size() && combinations[now.combination].first == now.round) {
      const Plan::Combination& all = combinations[now.combination++];
      sources_.clear();
      targets_.clear();
      for (const Span& span : all.sources) sources_.push_back(at.read(span));
      for (const Span& span : all.targets) targets_.push_back(at.write(span));
      wire_kernels(Device{}).combine(what.dtype, what.op, targets_, sources_,
                                     all.targets.front().count, streams, divisor);
      now.round += all.rounds;
      continue;
    }
    const Round& round = now.plan->program.rounds[now.round];
    for (const Step& step : round) {
      if (step.kind == Kind::signal) window_->signal(step.peer);
    }
    for (const Step& step : round) {
      if (step.kind != Kind::copy) continue;
      std::byte* const to = at.write(step.dst);
      const std::byte* const from = at.read(step.src);
      if (to != from && step.src.count > 0) std::memcpy(to, from, at.bytes(step.src));
    }
    for (; now.awaited < round.size(); ++now.awaited) {
      const Step& step = round[now.awaited];
      if (step.kind == Kind::await && !window_->await_briefly(step.peer)) return;
    }
    if (++now.round == 1 && now.plan->otherwise && !window_->reaches_all()) {
      now.plan = now.plan->otherwise.get();
    }
  }
  ++window_turn_;
  control_->finished(id_, now.channel.sequence,
                     {now.channel.signature, {what.words[0], what.words[1]}});
  now.algorithm = now.plan->entry;
  now.state = Exchange::State::over;
}

}  // namespace peal::comm
