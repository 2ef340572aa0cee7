// SPDX-License-Identifier: Apache-2.0
// What a process group does for PEAL_TRACE: it opens the files, compares the clocks, and writes at
// the end.
//
// Clocks. Rank 0 sends each other rank r an empty word and gets back what r's clock showed when it
// came. That moment lay between rank 0's sending and rank 0's receiving, so each exchange bounds
// the difference of the two clocks from both sides, with certainty; of many exchanges the tightest
// bounds count. This is done at the start and at the end, since clocks of two machines drift.
#include <peal/comm/group/process_group.h>
#include <peal/comm/record/recorder.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace peal::comm {
namespace {

constexpr int exchanges = 32;
// Past every tag of the user's.
constexpr Channel clock_channel{(std::uint64_t{1} << 63) | (std::uint64_t{1} << 16), 0xC10C};

}  // namespace

// One word to or from a rank, in front of whatever else is pending.
void ProcessGroup::pass_word(bool sends, int peer, const Tensor& word) {
  const MessageCall call{sends ? Direction::send : Direction::recv, word, peer};
  submit(call, plan_of(call), lane_->transport(), clock_channel, "").wait();
}

void ProcessGroup::compare_clocks(Recorder& recorder) {
  const Tensor word = Tensor::zeros({2}, DType::i64, Device{});
  auto* const values = word.data<std::int64_t>();
  if (rank() != 0) {
    for (int i = 0; i < exchanges; ++i) {
      pass_word(false, 0, word);
      values[0] = Recorder::now();
      pass_word(true, 0, word);
    }
    const std::int64_t at = values[0];
    pass_word(false, 0, word);
    recorder.add_bounds({at, values[0], values[1]});
    return;
  }
  for (int peer = 1; peer < world(); ++peer) {
    std::int64_t low = std::numeric_limits<std::int64_t>::min();
    std::int64_t high = std::numeric_limits<std::int64_t>::max();
    for (int i = 0; i < exchanges; ++i) {
      const std::int64_t sent = Recorder::now();
      pass_word(true, peer, word);
      pass_word(false, peer, word);
      const std::int64_t received = Recorder::now();
      low = std::max(low, sent - values[0]);
      high = std::min(high, received - values[0]);
    }
    values[0] = std::min(low, high);  // the other way round only where clocks drift meanwhile
    values[1] = std::max(low, high);
    pass_word(true, peer, word);
  }
}

void ProcessGroup::start_trace() {
  std::shared_ptr<Recorder> recorder;
  std::string problem;
  try {
    recorder = std::make_shared<Recorder>(options_.trace, rank(), world());
  } catch (const Error& error) {
    problem = error.what();
  }
  for (const std::string& theirs : all_gather_object(problem)) PEAL_CHECK(theirs.empty(), theirs);
  const std::int64_t run = std::stoll(all_gather_object(concat(Recorder::now()))[0]);
  compare_clocks(*recorder);
  recorder->add_group(lane_->id(), members_);
  recorder->start(run);
  engine_->set_recorder(recorder);
  lane_->set_recorder(recorder);
  traces_ = true;
}

void ProcessGroup::write_trace() {
  if (!std::exchange(traces_, false)) return;
  const std::shared_ptr<Recorder> recorder = engine_->recorder();
  engine_->set_recorder(nullptr);
  lane_->set_recorder(nullptr);
  if (poisoned()) return recorder->write();
  try {
    compare_clocks(*recorder);
  } catch (...) {  // a rank has failed meanwhile
    recorder->write();
    throw;
  }
  std::string problem;
  try {
    recorder->write();
  } catch (const Error& error) {
    problem = error.what();
  }
  for (const std::string& theirs : all_gather_object(problem)) PEAL_CHECK(theirs.empty(), theirs);
}

}  // namespace peal::comm
