// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/graph.h>
#include <peal/comm/engine/execution.h>
#include <peal/comm/engine/streamed_copies.h>
#include <peal/comm/record/recorder.h>
#include <peal/comm/reduce/table.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace peal::comm {
namespace {

constexpr std::size_t part_bytes = std::size_t{1} << 20;
constexpr std::int64_t most_parts = 16;  // of a message; libraries look at all that are open

}  // namespace

Execution::Execution(Call&& call, std::shared_ptr<const Plan> plan, Transport& transport,
                     Channel channel, CopyStreams& copies, std::size_t segment, Window* window)
    : call_(std::move(call)),
      plan_(std::move(plan)),
      now_(plan_.get()),
      transport_(transport),
      window_(window),
      channel_(channel),
      place_(transport.device()),
      buffers_(std::visit(
          [&](const auto& each) {
            return Buffers(each, plan_.get(), transport, copies, segment, window);
          },
          call_)) {
  at_.plan = plan_.get();
}

void Execution::go_on_from(const Exchange& exchange) {
  begun_before_ = exchange.state == Exchange::State::begun;
  if (!begun_before_) return;
  at_ = exchange.at;
  now_ = at_.plan;
}

void Execution::give_up() {
  for (const Posted& each : posted_) held_ = !transport_.cancel(each.ticket) || held_;
  posted_.clear();
}

// A library, or a device, may still write the memory of one that ends before its time.
Execution::~Execution() {
  give_up();
  const bool under_way = state_ == State::runs || state_ == State::handed_over;
  // By others, who go on.
  const bool reached = state_ == State::runs ? one_sided() : state_ == State::made && begun_before_;
  if (held_ || reached || (under_way && !quiet())) buffers_.quarantine();
}

bool Execution::stay() {
  if (!stream_ordered() || Graph::capturing() != nullptr || !buffers_.all_there()) return false;
  stays_in_ = current_stream(place_);
  return true;
}

void Execution::take_place() {
  if (stays_in_) return caller_.stay(*stays_in_);
  buffers_.follow(caller_);
}

bool Execution::quiet() const {
  try {
    return stays_in_ ? stays_in_->query() : buffers_.quiet();
  } catch (const Error&) {
    return false;
  }
}

void Execution::record(std::shared_ptr<Recorder> recorder, std::int32_t number) {
  recorder_ = std::move(recorder);
  number_ = number;
}

std::size_t Execution::progress() const {
  return at_.round + over_ + buffers_.parts_arrived() + (state_ == State::over ? 1 : 0);
}

// All ranks cut alike, so that parts meet. Each is worth a message of its own, and adding it takes
// about as long as it takes to come.
bool Execution::goes_in_parts(std::size_t bytes) const {
  return bytes > part_bytes && !on_device() && !is_message(call_);
}

void Execution::post_messages() {
  if (messages_.empty()) return;
  posted_.reserve(posted_.size() + 1);  // no ticket may be lost
  posted_.push_back({transport_.post(channel_, messages_)});
  messages_.clear();
}

void Execution::post(const Step& step, Message message) {
  if (!goes_in_parts(message.bytes)) return messages_.push_back(message);
  post_messages();
  const bool adds = step.kind == Kind::recv_reduce;
  const auto element = static_cast<std::int64_t>(buffers_.bytes(1));
  const std::int64_t all = step.kind == Kind::send ? step.src.count : step.dst.count;
  const std::int64_t most = std::max(static_cast<std::int64_t>(part_bytes) / element,
                                     (all + most_parts - 1) / most_parts);
  for (std::int64_t at = 0; at < all; at += most) {
    const std::int64_t count = std::min(most, all - at);
    messages_.push_back({message.direction, message.peer, message.data + at * element,
                         buffers_.bytes(count), message.source});
    post_messages();
    if (adds) {
      Posted& part = posted_.back();
      part = {part.ticket, &step, at, count, message.data + at * element};
    }
  }
}

void Execution::post_round() {
  messages_.clear();
  std::byte* arrival = buffers_.arrivals();
  for (const Step& step : round()) {
    switch (step.kind) {
      case Kind::send:
        post(step,
             {Direction::send, step.peer, buffers_.at(step.src), buffers_.bytes(step.src.count)});
        break;
      case Kind::recv:
        post(step, {Direction::recv, step.peer, buffers_.at(step.dst),
                    buffers_.bytes(step.dst.count), &source_});
        break;
      case Kind::recv_reduce: {
        const std::size_t bytes = buffers_.bytes(step.dst.count);
        post(step, {Direction::recv, step.peer, arrival, bytes});
        arrival += bytes;
        break;
      }
      case Kind::signal:
        window_->signal(step.peer);
        break;
      default:
        break;
    }
  }
  post_messages();
}

void Execution::add(const Step& step, std::int64_t at, std::int64_t count, const std::byte* from) {
  wire_kernels(place_).reduce(buffers_.dtype(), collective().op,
                              buffers_.at(step.dst) + buffers_.bytes(at), from, count);
}

void Execution::do_local_steps() {
  const WireKernels& kernels = wire_kernels(place_);
  StepTimes* times = times_;
  for (const Step& step : round()) {
    const bool timed = times && (step.kind == Kind::copy || step.kind == Kind::reduce);
    if (timed) times->moves = Recorder::now();
    if (step.kind == Kind::copy) {
      std::byte* const to = buffers_.at(step.dst);
      const std::byte* const from = buffers_.at(step.src);
      const std::size_t bytes = buffers_.bytes(step.dst.count);
      if (window_ != nullptr && may_stream(step) &&
          outgrows_caches(collective().out.bytes(), window_->ranks())) {
        copy_streaming(to, from, bytes);
      } else {
        buffers_.move(to, from, bytes);
      }
    } else if (step.kind == Kind::reduce) {
      kernels.reduce(buffers_.dtype(), collective().op, buffers_.at(step.dst),
                     buffers_.at(step.src), step.dst.count);
    }
    if (timed) times->end = Recorder::now();
    if (times) ++times;
  }
}

// A round is known to be over as a whole.
void Execution::note_arrival() {
  const std::int64_t now = Recorder::now();
  StepTimes* times = times_;
  for (const Step& step : round()) {
    if (step.kind != Kind::copy && step.kind != Kind::reduce) times->end = now;
    if (step.kind == Kind::recv && step.peer == any_source) times->peer = source_;
    ++times;
  }
}

void Execution::finish_round() {
  if (times_) note_arrival();
  const std::byte* arrival = buffers_.arrivals();
  StepTimes* times = times_;
  for (const Step& step : round()) {
    if (step.kind == Kind::recv_reduce) {
      const std::size_t bytes = buffers_.bytes(step.dst.count);
      if (!goes_in_parts(bytes)) add(step, 0, step.dst.count, arrival);
      arrival += bytes;
      if (times) times->end = Recorder::now();
    }
    if (times) ++times;
  }
}

std::string Execution::waits_for() const {
  if (state_ == State::runs && posted_.empty() && !buffers_.all_arrived()) {
    return "its own data from the device";
  }
  if (handed_over()) return "the device's queue";
  if (posted_.empty() && at_.in_round && at_.plan != nullptr) {
    for (std::size_t i = at_.awaited; i < round().size(); ++i) {
      if (round()[i].kind == Kind::await) {
        return concat("a signal from rank ", round()[i].peer, " in round ", at_.round);
      }
    }
  }
  std::vector<Message> open;
  for (const Posted& each : posted_) {
    const auto of_it = transport_.open(each.ticket);
    open.insert(open.end(), of_it.begin(), of_it.end());
  }
  const std::string messages = describe(open);
  const bool rounds = !messages.empty() && !is_message(call_);
  return rounds ? concat(messages, " in round ", at_.round) : messages;
}

bool Execution::run_native() {
  if (!at_.in_round) {
    if (!buffers_.arrived(0)) return false;
    NativeCall native = native_call(collective(), place_.type);
    native.in = buffers_.whole(Buffer::in);
    native.out = buffers_.whole(Buffer::out);
    at_.in_round = true;
    posted_.push_back({transport_.native()->start(native)});
  }
  if (at_.round == 0) {
    if (!is_over()) return false;
    buffers_.hand_back(at_.round++);
  }
  return buffers_.arrived(1);
}

void Execution::begin() {
  if (recorder_) times_ = recorder_->begin_round(number_, at_.round, round());
  post_round();
  do_local_steps();
}

// All of its rounds in one pass.
void Execution::combine(const Plan::Combination& all) {
  thread_local CombinedMemory memory;
  memory.find(all, buffers_.spans());
  const std::size_t end = at_.round + all.rounds;
  const auto bytes = static_cast<std::ptrdiff_t>(buffers_.bytes(all.targets.front().count));
  for (const auto& [t, s] : all.aliased) {
    const std::ptrdiff_t apart = memory.targets[t] - memory.sources[s];
    PEAL_CHECK(apart == 0 || apart >= bytes || -apart >= bytes, "rounds ", at_.round, " to ",
               end - 1, " store into a part of what they add: in and out overlap");
  }
  const std::int64_t begin = recorder_ ? Recorder::now() : 0;
  wire_kernels(place_).combine(buffers_.dtype(), collective().op, memory.targets, memory.sources,
                               all.targets.front().count, buffers_.streams(), buffers_.divisor());
  for (std::size_t done = at_.round; done < end; buffers_.hand_back(done++)) {
    if (!recorder_) continue;
    const Round& round = at_.plan->program.rounds[done];
    StepTimes* const times = recorder_->begin_round(number_, done, round);
    for (std::size_t i = 0; times != nullptr && i < round.size(); ++i) {
      times[i].begin = times[i].moves = begin;
      times[i].end = Recorder::now();
    }
  }
}

bool Execution::is_over() {
  for (std::size_t i = 0; i < posted_.size();) {
    if (!transport_.test(posted_[i].ticket)) {
      ++i;
      continue;
    }
    const Posted done = posted_[i];
    posted_.erase(posted_.begin() + static_cast<std::ptrdiff_t>(i));
    ++over_;
    if (done.adds != nullptr) add(*done.adds, done.at, done.count, done.arrival);
  }
  return posted_.empty();
}

void Execution::end() {
  finish_round();
  buffers_.hand_back(at_.round);
}

void Execution::goes_on() {
  now_ = at_.plan;
  if (!recorder_) return;
  recorder_->goes_on(number_, at_.plan->name,
                     std::shared_ptr<const Program>(plan_, &at_.plan->program));
}

bool Execution::hand_over() {
  if (handed_over()) return true;
  try {
    std::optional<StreamGuard> guard;
    if (on_device()) guard.emplace(queue());
    if (state_ == State::made) {
      state_ = State::runs;
      if (stream_ordered() && Graph::capturing() == nullptr) {
        transport_.queue()->tail().enter(queue());
      }
      if (on_device()) caller_.enter(queue());
      buffers_.open();
      if (one_sided() && !begun_before_) {
        window_->begin(*plan_, buffers_.bytes(1), channel_.signature, buffers_.whole(Buffer::in),
                       buffers_.whole(Buffer::out));
      }
    }
    if (!plan_) {
      if (!run_native()) return false;
    } else if (!walk(at_, window_, *this) || !buffers_.arrived(at_.round)) {
      return false;
    }
    buffers_.close(caller_);
    if (on_device()) caller_.leave(queue());
    state_ = State::handed_over;
  } catch (const std::exception& error) {
    if (!plan_) throw;
    fail(concat("round ", at_.round, ": ", error.what()));
  }
  return true;
}

// Its memory is the caller's again.
bool Execution::advance() {
  if (state_ == State::over) return true;
  if (!hand_over() || !caller_.is_over()) return false;
  buffers_.release();
  if (recorder_) recorder_->end(number_);
  state_ = State::over;
  return true;
}

void Execution::leave_capture() {
  caller_ = {};
  state_ = State::captured;
}

void Execution::begin_replay() {
  caller_.follow(place_);
  transport_.queue()->tail().lead(current_stream(place_));
}

void Execution::end_replay() {
  caller_.leave(current_stream(place_));
  state_ = State::handed_over;
  const StreamGuard guard(transport_.queue()->stream());
  caller_.order();
  transport_.queue()->tail().enter(transport_.queue()->stream());
}

}  // namespace peal::comm
