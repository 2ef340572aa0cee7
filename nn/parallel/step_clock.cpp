// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/schedule/mix.h>
#include <peal/nn/parallel/step_clock.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace peal::nn {
namespace {

std::int64_t now() { return comm::Recorder::now(); }
double seconds(std::int64_t time) { return static_cast<double>(time) * 1e-9; }

std::int64_t bytes_of(const Bucket& bucket) {
  return bucket.count * static_cast<std::int64_t>(size_of(bucket.dtype));
}

}  // namespace

StepClock::StepClock(comm::ProcessGroup group, std::int64_t every, std::uint64_t tag)
    : group_(std::move(group)),
      every_(comm::Recording::is_traced(group_) ? 1 : every),
      tag_(tag),
      recording_(group_) {}

// Several forwards before a backward are one.
void StepClock::forward_begins() {
  if (forward_ == 0) forward_ = now();
}

void StepClock::forward_ends() { backward_ = now(); }

void StepClock::step_begins(std::uint64_t step, bool captured, const std::vector<Bucket>& plan,
                            const NamedTensors& parameters) {
  step_ = step;
  on_ = !captured && step % static_cast<std::uint64_t>(every_) == 0;
  if (!on_) return;
  recording_.begin();
  plan_ = plan;
  names_.clear();
  for (const auto& [name, tensor] : parameters) names_.push_back(name);
  came_.assign(names_.size(), 0);
  ways_.assign(plan_.size(), Way{});
  first_ = now();
  visited_ = 0;
  if (backward_ == 0) backward_ = first_;  // without a batch, or of an earlier forward
}

void StepClock::gradient(std::size_t parameter, std::size_t bucket, bool last) {
  if (!on_) return;
  came_[parameter] = now();
  ways_[bucket].held_by = static_cast<int>(parameter);
  if (last) ways_[bucket].ready = came_[parameter];
}

void StepClock::sends(std::size_t bucket, std::string_view label) {
  if (!on_) return;
  Way& way = ways_[bucket];
  way.sent = now();
  if (way.ready == 0) way.ready = way.sent;  // of parameters that got no gradient
  way.label = label;
}

void StepClock::sent_by_hook(std::size_t bucket, const comm::Work& work) {
  if (!on_) return;
  auto over = ways_[bucket].over = std::make_shared<std::int64_t>(0);
  work.then([over] { *over = now(); });
}

void StepClock::visited() {
  if (on_) visited_ = now();
}

void StepClock::waits(std::size_t bucket) {
  if (on_) ways_[bucket].waits = now();
}

void StepClock::waited() {
  if (on_) waited_ = now();
}

std::string StepClock::name_of(int parameter) const {
  return parameter < 0 ? "none" : names_[static_cast<std::size_t>(parameter)];
}

comm::BucketTime StepClock::time_of(
    const Way& way, const std::vector<std::pair<std::string, comm::CollectiveTime>>& all) const {
  comm::BucketTime time{
      seconds(way.ready), seconds(way.sent), way.over ? seconds(*way.over) : 0.0, {}};
  for (const auto& [text, one] : all) {
    if (text.find(way.label) != std::string::npos) time.collectives.push_back(one);
  }
  return time;
}

void StepClock::step_ends() {
  const std::int64_t forward = std::exchange(forward_, 0), backward = std::exchange(backward_, 0);
  if (!std::exchange(on_, false)) return;
  if (visited_ == 0) visited_ = ways_.empty() ? waited_ : ways_.front().waits;  // without a batch
  DDPLoggingData data;
  data.step = step_;
  data.forward_compute_time = forward == 0 ? 0 : seconds(backward - forward);
  data.backward_compute_time = seconds(visited_ - backward);
  data.exposed_comm_time = ways_.empty() ? 0 : seconds(waited_ - ways_.front().waits);
  for (const std::int64_t came : came_) {
    data.gradient_ready.push_back(came == 0 ? std::numeric_limits<double>::quiet_NaN()
                                            : seconds(came - backward));
  }
  note(forward, backward);
  const auto all = recording_.end();
  double first = std::numeric_limits<double>::infinity(), last = 0;
  for (std::size_t b = 0; b < plan_.size(); ++b) {
    const Way& way = ways_[b];
    const comm::BucketTime time = time_of(way, all);
    const comm::BucketPhases phases = comm::phases(time);
    BucketTimes& bucket = data.buckets.emplace_back();
    bucket.bytes = bytes_of(plan_[b]);
    bucket.ready = seconds(way.ready - backward);
    bucket.queue = phases.queue;
    bucket.copy_in = phases.copy_in;
    bucket.wire = phases.transfer;
    bucket.copy_out = phases.copy_out;
    const std::int64_t next = b + 1 < plan_.size() ? ways_[b + 1].waits : waited_;
    bucket.exposed = seconds(next - way.waits);
    first = std::min(first, time.sent);
    last = std::max(last, time.ready + phases.all());
  }
  if (!plan_.empty()) {
    data.backward_comm_time = last - first;
    data.backward_compute_comm_overlap_time =
        std::max(0.0, std::min(last, seconds(visited_)) - first);
  }
  compare(data);
  last_ = std::move(data);
}

void StepClock::note(std::int64_t forward, std::int64_t backward) {
  for (std::size_t b = 0; b < plan_.size(); ++b) {
    const Way& way = ways_[b];
    recording_.note(comm::BucketNote{tag_, step_, static_cast<std::int64_t>(b), bytes_of(plan_[b]),
                                     way.ready, way.sent, way.over ? *way.over : 0,
                                     name_of(way.held_by), way.label});
  }
  recording_.note(comm::StepNote{tag_, step_, forward, backward, visited_, waited_});
}

// Who was last, for whom others waited.
void StepClock::compare(DDPLoggingData& data) const {
  const std::size_t each = 2 * plan_.size() + 1;
  const auto count = static_cast<std::int64_t>(each);
  const Tensor mine = Tensor::empty({count}, DType::f64, Device{});
  auto* const words = mine.data<double>();
  for (std::size_t b = 0; b < plan_.size(); ++b) {
    words[2 * b] = data.buckets[b].wire;
    words[2 * b + 1] = static_cast<double>(ways_[b].held_by);
  }
  words[each - 1] = data.exposed_comm_time;
  const Tensor all = Tensor::empty({group_.world(), count}, DType::f64, Device{});
  group_.all_gather(all, mine, {"times of a step", tag_}).wait();
  const double* const theirs = all.data<double>();
  for (std::size_t r = 0; r < static_cast<std::size_t>(group_.world()); ++r) {
    const double* const row = theirs + r * each;
    data.largest_exposed_comm_time = std::max(data.largest_exposed_comm_time, row[each - 1]);
    for (std::size_t b = 0; b < plan_.size(); ++b) {
      BucketTimes& bucket = data.buckets[b];
      if (r > 0 &&
          row[2 * b] >= theirs[static_cast<std::size_t>(bucket.last_rank) * each + 2 * b]) {
        continue;
      }
      bucket.last_rank = static_cast<int>(r);
      bucket.held_back_by = name_of(static_cast<int>(row[2 * b + 1]));
    }
  }
  for (std::size_t b = 0; b < plan_.size(); ++b) {
    BucketTimes& bucket = data.buckets[b];
    const double least = theirs[static_cast<std::size_t>(bucket.last_rank) * each + 2 * b];
    bucket.slowest = bucket.wire - least;
    bucket.wire = least;
  }
}

}  // namespace peal::nn
