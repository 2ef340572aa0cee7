// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/schedule/mix.h>
#include <peal/nn/parallel/step_clock.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

namespace peal::nn {
namespace {

std::int64_t now() { return comm::Recorder::now(); }
double seconds(std::int64_t time) { return static_cast<double>(time) * 1e-9; }

constexpr double no_time = std::numeric_limits<double>::quiet_NaN();

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
  begun_ = now();
  if (std::ranges::all_of(outputs_, [](const auto& node) { return node.expired(); })) {
    outputs_.clear();
    first_ = 0;
  }
}

void StepClock::forward_ends(const Tensors& outputs) {
  const std::size_t before = outputs_.size();
  for (const Tensor& output : outputs) {
    if (output.defined() && output.body().node) outputs_.push_back(output.body().node);
  }
  if (outputs_.size() == before) return;
  if (first_ == 0) first_ = begun_;
  last_end_ = now();
}

void StepClock::step_begins(std::uint64_t step, bool captured, const std::vector<Bucket>& plan,
                            const NamedTensors& parameters) {
  step_fails();  // where an exception has left one
  step_ = step;
  forward_ = std::exchange(first_, 0);
  backward_ = std::exchange(last_end_, 0);
  outputs_.clear();
  on_ = !captured && step % static_cast<std::uint64_t>(every_) == 0;
  if (!on_) return;
  recording_.begin();
  plan_ = plan;
  names_.clear();
  for (const auto& [name, tensor] : parameters) names_.push_back(name);
  came_.assign(names_.size(), 0);
  ways_.assign(plan_.size(), Way{});
  visited_ = 0;
  if (backward_ == 0) backward_ = now();  // without a batch, or of an earlier forward
}

void StepClock::step_fails() {
  if (std::exchange(on_, false)) recording_.end();
}

void StepClock::gradient(std::size_t parameter, std::size_t bucket, bool last) {
  if (!on_) return;
  came_[parameter] = now();
  ways_[bucket].held_by = static_cast<int>(parameter);
  if (last) ways_[bucket].ready = came_[parameter];
}

void StepClock::sends(std::size_t bucket, const comm::Label& label) {
  if (!on_) return;
  Way& way = ways_[bucket];
  way.sent = now();
  if (way.ready == 0) way.ready = way.sent;  // of parameters that got no gradient
  way.label = label.text;
  way.tag = label.tag;
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

comm::BucketTime StepClock::Way::time() const {
  comm::BucketTime time{seconds(ready), seconds(sent), over ? seconds(*over) : 0.0, {}};
  for (const comm::Recorder::Ended& each : collectives) time.collectives.push_back(each.time);
  return time;
}

void StepClock::step_ends() {
  if (!std::exchange(on_, false)) return;
  if (visited_ == 0) visited_ = ways_.empty() ? waited_ : ways_.front().waits;  // without a batch
  const comm::Recording::Found found = recording_.end();
  for (Way& way : ways_) {
    std::ranges::copy_if(found.collectives, std::back_inserter(way.collectives),
                         [&](const auto& each) { return each.purpose == way.tag; });
  }
  note();
  DDPLoggingData data;
  data.step = step_;
  data.forward_compute_time = forward_ == 0 ? 0 : seconds(backward_ - forward_);
  data.backward_compute_time = seconds(visited_ - backward_);
  data.exposed_comm_time = ways_.empty() ? 0 : seconds(waited_ - ways_.front().waits);
  for (const std::int64_t came : came_) {
    data.gradient_ready.push_back(came == 0 ? no_time : seconds(came - backward_));
  }
  add_buckets(data, found.whole);
  compare(data);
  last_ = std::move(data);
}

void StepClock::add_buckets(DDPLoggingData& data, bool recorded) const {
  double first = std::numeric_limits<double>::infinity(), last = 0;
  for (std::size_t b = 0; b < plan_.size(); ++b) {
    const Way& way = ways_[b];
    const comm::BucketTime time = way.time();
    const comm::BucketPhases phases =
        recorded ? comm::phases(time) : comm::BucketPhases{no_time, no_time, no_time, no_time};
    BucketTimes& bucket = data.buckets.emplace_back();
    bucket.bytes = bytes_of(plan_[b]);
    bucket.ready = seconds(way.ready - backward_);
    bucket.queue = phases.queue;
    bucket.copy_in = phases.copy_in;
    bucket.wire = phases.transfer;
    bucket.copy_out = phases.copy_out;
    const std::int64_t next = b + 1 < plan_.size() ? ways_[b + 1].waits : waited_;
    bucket.exposed = seconds(next - way.waits);
    first = std::min(first, time.sent);
    last = std::max(last, time.ready + phases.all());
  }
  if (plan_.empty()) return;
  const double over = seconds(visited_);
  data.backward_comm_time = recorded ? last - first : no_time;
  data.backward_compute_comm_overlap_time =
      recorded ? std::max(0.0, std::min(last, over) - first) : no_time;
}

void StepClock::note() {
  for (std::size_t b = 0; b < plan_.size(); ++b) {
    const Way& way = ways_[b];
    comm::BucketNote bucket{tag_,      step_,    static_cast<std::int64_t>(b), bytes_of(plan_[b]),
                            way.ready, way.sent, way.over ? *way.over : 0,     name_of(way.held_by),
                            way.label, {}};
    for (const auto& each : way.collectives) bucket.operations.push_back(each.operation);
    recording_.note(std::move(bucket));
  }
  recording_.note(comm::StepNote{tag_, step_, forward_, backward_, visited_, waited_});
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
  std::vector<double> least(plan_.size(), std::numeric_limits<double>::infinity());
  for (std::size_t r = 0; r < static_cast<std::size_t>(group_.world()); ++r) {
    const double* const row = theirs + r * each;
    data.largest_exposed_comm_time = std::max(data.largest_exposed_comm_time, row[each - 1]);
    for (std::size_t b = 0; b < plan_.size(); ++b) {
      if (!(row[2 * b] < least[b])) continue;  // nor where it is not measured
      least[b] = row[2 * b];
      data.buckets[b].last_rank = static_cast<int>(r);
      data.buckets[b].held_back_by = name_of(static_cast<int>(row[2 * b + 1]));
    }
  }
  for (std::size_t b = 0; b < plan_.size(); ++b) {
    BucketTimes& bucket = data.buckets[b];
    bucket.slowest = bucket.wire - least[b];
    if (!std::isnan(bucket.wire)) bucket.wire = least[b];
  }
}

}  // namespace peal::nn
