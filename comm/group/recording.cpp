// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/group/group_body.h>
#include <peal/comm/group/recording.h>

namespace peal::comm {

// A step has a few collectives a bucket. What has no room is not recorded.
constexpr std::size_t most_operations = 4096, most_steps = std::size_t{1} << 16;

Recording::~Recording() {
  if (own_) body_of(group_).lane->set_recorder(nullptr);
}

bool Recording::is_traced(const ProcessGroup& group) {
  const auto& recorder = body_of(group).lane->recorder();
  return recorder && recorder->recording();
}

void Recording::begin() {
  GroupBody& body = body_of(group_);
  const auto still = body.engine->hold();
  if (own_) body.lane->set_recorder(nullptr);
  own_ = traced_ = nullptr;
  if (is_traced(group_)) {
    traced_ = body.lane->recorder();
    from_ = traced_->mark();
  } else {
    own_ = std::make_shared<Recorder>(most_operations, most_steps);
    from_ = {};
    body.lane->set_recorder(own_);
  }
}

std::vector<std::pair<std::string, CollectiveTime>> Recording::end() {
  GroupBody& body = body_of(group_);
  const auto still = body.engine->hold();
  if (own_) body.lane->set_recorder(nullptr);
  const auto recorder = own_ ? std::exchange(own_, nullptr) : std::exchange(traced_, nullptr);
  if (!recorder) return {};
  return recorder->ended(from_);
}

}  // namespace peal::comm
