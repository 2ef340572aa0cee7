// SPDX-License-Identifier: Apache-2.0
// What a process group does for PEAL_TRACE: it opens the files, compares the clocks, and writes at
// the end.
//
// Clocks. Rank 0 sends each other rank r an empty word and gets back what r's clock showed when it
// came. That moment lay between rank 0's sending and rank 0's receiving, so each exchange bounds
// the difference of the two clocks from both sides, with certainty; of many exchanges the tightest
// bounds count. This is done at the start and at the end, since clocks of two machines drift.
#include <peal/autograd/core/failure_words.h>
#include <peal/comm/group/group_body.h>
#include <peal/comm/record/recorder.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>

namespace peal::comm {
namespace {

constexpr int exchanges = 32;
// Past every tag of the user's. MPI sees 16 bits of it, all 0: there users' messages under tag 0
// that are pending meanwhile are kept apart by what is left of the signature
// (transport/mpi/tags.h).
constexpr Channel clock_channel{(std::uint64_t{1} << 63) | (std::uint64_t{1} << 16), 0xC10C};

// One word to or from a rank, in front of whatever else is pending.
void pass_word(GroupBody& group, bool sends, int peer, const Tensor& word) {
  const MessageCall call{sends ? Direction::send : Direction::recv, word, peer};
  group.submit(call, plan_of(call), group.lane->transport(), clock_channel, "").wait();
}

void compare_clocks(GroupBody& group, Recorder& recorder) {
  const Tensor word = Tensor::zeros({2}, DType::i64, Device{});
  auto* const values = word.data<std::int64_t>();
  if (group.rank != 0) {
    for (int i = 0; i < exchanges; ++i) {
      pass_word(group, false, 0, word);
      values[0] = Recorder::now();
      pass_word(group, true, 0, word);
    }
    const std::int64_t at = values[0];
    pass_word(group, false, 0, word);
    recorder.add_bounds({at, values[0], values[1]});
    return;
  }
  for (int peer = 1; peer < group.world; ++peer) {
    std::int64_t low = std::numeric_limits<std::int64_t>::min();
    std::int64_t high = std::numeric_limits<std::int64_t>::max();
    for (int i = 0; i < exchanges; ++i) {
      const std::int64_t sent = Recorder::now();
      pass_word(group, true, peer, word);
      pass_word(group, false, peer, word);
      const std::int64_t received = Recorder::now();
      low = std::max(low, sent - values[0]);
      high = std::min(high, received - values[0]);
    }
    values[0] = std::min(low, high);  // the other way round only where clocks drift meanwhile
    values[1] = std::max(low, high);
    pass_word(group, true, peer, word);
  }
}

}  // namespace

// Of the thread that made the group, as it is the one that trains.
void note_ops(GroupBody& group, Recorder& recorder) {
  const auto ops = std::exchange(group.ops, nullptr);
  if (!ops) return;
  const auto nanoseconds = [](Trace::Clock::duration time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  };
  for (const Trace::Span& span : ops->spans(std::this_thread::get_id())) {
    const std::int64_t begin = nanoseconds(span.begin.time_since_epoch());
    recorder.note(OpNote{.begin = begin,
                         .end = begin + static_cast<std::int64_t>(span.seconds * 1e9),
                         .backward = span.backward,
                         .outermost = span.outermost,
                         .name = std::string(span.name)});
  }
  if (group.made_ops && context().trace == ops) context().trace = nullptr;
}

void start_trace(const ProcessGroup& group) {
  GroupBody& body = body_of(group);
  std::shared_ptr<Recorder> recorder;
  const std::string problem = failure_in(
      [&] { recorder = std::make_shared<Recorder>(body.options.trace, body.rank, body.world); });
  for (const std::string& theirs : group.all_gather_object(problem))
    PEAL_CHECK(theirs.empty(), theirs);
  const std::int64_t run = std::stoll(group.all_gather_object(concat(Recorder::now()))[0]);
  compare_clocks(body, *recorder);
  recorder->add_group(body.lane->id(), body.members);
  recorder->start(run);
  body.engine->set_recorder(recorder);
  body.lane->set_recorder(recorder);
  body.traces = true;
  // The ops of the thread that trains are a part of the picture.
  body.made_ops = !context().trace;
  if (body.made_ops) context().trace = std::make_shared<Trace>(Trace::picture_events);
  body.ops = context().trace;
}

void ProcessGroup::write_trace() const {
  GroupBody& group = body();
  if (group.inherited() || !std::exchange(group.traces, false)) return;
  const std::shared_ptr<Recorder> recorder = group.engine->recorder();
  group.engine->set_recorder(nullptr);
  group.lane->set_recorder(nullptr);
  note_ops(group, *recorder);
  if (poisoned()) return group.engine->write(*recorder);
  try {
    compare_clocks(group, *recorder);
  } catch (...) {  // a rank has failed meanwhile
    group.engine->write(*recorder);
    throw;
  }
  const std::string problem = failure_in([&] { group.engine->write(*recorder); });
  for (const std::string& theirs : all_gather_object(problem)) PEAL_CHECK(theirs.empty(), theirs);
}

}  // namespace peal::comm
