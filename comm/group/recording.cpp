// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/group/group_body.h>
#include <peal/comm/group/recording.h>

namespace peal::comm {

// A step has a few collectives a bucket. What has no room is not recorded.
constexpr std::size_t most_operations = 4096, most_steps = std::size_t{1} << 16;

Recording::~Recording() { leave(); }

bool Recording::is_traced(const ProcessGroup& group) {
  const auto& recorder = body_of(group).lane->recorder();
  return recorder && recorder->has_file() && recorder->recording();
}

// The last one takes a recorder without a file off.
void Recording::leave() {
  const auto recorder = std::exchange(recorder_, nullptr);
  if (!recorder || recorder->has_file() || !recorder->leave()) return;
  Lane& lane = *body_of(group_).lane;
  if (lane.recorder() == recorder) lane.set_recorder(nullptr);
}

void Recording::begin() {
  GroupBody& body = body_of(group_);
  const auto still = body.engine->hold();
  leave();
  file_ = nullptr;
  recorder_ = body.lane->recorder();
  // One that somebody has forgotten to leave fills up.
  if (!recorder_ || (!recorder_->has_file() && recorder_->half_full())) {
    if (recorder_) recorder_->give_up();
    recorder_ = std::make_shared<Recorder>(most_operations, most_steps);
    body.lane->set_recorder(recorder_);
  }
  if (!recorder_->has_file()) recorder_->join();
  from_ = recorder_->mark();
}

Recording::Found Recording::end() {
  const auto still = body_of(group_).engine->hold();
  const auto recorder = recorder_;
  leave();
  if (!recorder) return {};
  Found found{recorder->ended(from_), recorder->whole_since(from_)};
  if (found.whole && recorder->has_file()) file_ = recorder;
  return found;
}

}  // namespace peal::comm
