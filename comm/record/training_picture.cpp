// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/record/training_steps.h>

#include <algorithm>
#include <utility>

namespace peal::comm {
namespace {

std::string size_text(std::int64_t bytes) {
  const auto in = [](std::int64_t whole, const char* unit) { return std::to_string(whole) + unit; };
  if (bytes >= std::int64_t{10} << 20) return in(bytes >> 20, " MiB");
  return bytes >= 10 << 10 ? in(bytes >> 10, " KiB") : in(bytes, " B");
}

// One after the other, from the last gradient on; empty ones are left out.
std::vector<StepBar> bars_of(const StepBucket& bucket, double slowest_ends_by) {
  std::vector<StepBar> bars;
  const auto bar = [&](StepPart part, double from, double to) {
    if (to > from) bars.push_back({part, from, to, ""});
  };
  bar(StepPart::queue, bucket.time.ready, bucket.time.sent);
  double last = bucket.time.sent;
  for (const CollectiveTime& one : bucket.time.collectives) {
    const bool first = &one == &bucket.time.collectives.front();
    const StepPart before = bucket.time.over != 0 ? StepPart::copy_in : StepPart::queue;
    bar(first ? before : StepPart::copy_out, last, one.begin);
    bar(StepPart::queue, one.begin, one.first);
    const double met = std::clamp(slowest_ends_by, one.first, one.end);
    bar(StepPart::slowest, one.first, first ? met : one.first);
    const double from = first ? met : one.first;
    const double in = std::min(one.copied_in, one.end - from);
    const double out = std::min(one.copied_out, one.end - from - in);
    bar(StepPart::copy_in, from, from + in);
    bar(StepPart::wire, from + in, one.end - out);
    bar(StepPart::copy_out, one.end - out, one.end);
    last = one.end;
  }
  if (bucket.time.over != 0) bar(StepPart::copy_out, last, bucket.time.over);
  return bars;
}

}  // namespace

StepPicture picture(const TrainingStep& step) {
  StepPicture all;
  const double origin = step.begin();
  const auto add = [&](StepLane& lane, StepBar bar) {
    bar.begin -= origin;
    bar.end -= origin;
    lane.bars.push_back(std::move(bar));
  };
  for (const StepRank& rank : step.ranks) {
    StepPanel panel{"rank " + std::to_string(rank.rank), {}};
    StepLane ops{"ops", "", {}};
    for (const MeasuredOp& op : rank.ops) {
      const StepPart part = op.begin >= rank.times.visited ? StepPart::exposed
                            : op.backward                  ? StepPart::backward
                                                           : StepPart::forward;
      if (part != StepPart::exposed) add(ops, {part, op.begin, op.end, op.name});
    }
    add(ops, {StepPart::exposed, rank.times.visited, rank.times.end, "waits for gradients"});
    panel.lanes.push_back(std::move(ops));
    for (std::size_t b = 0; b < rank.buckets.size(); ++b) {
      const StepBucket& bucket = rank.buckets[b];
      StepLane lane{
          "bucket " + std::to_string(b), size_text(bucket.bytes) + ", last " + bucket.held_by, {}};
      const std::size_t last = step.last_rank(b);
      for (StepBar& bar : bars_of(bucket, step.ranks[last].buckets[b].first_round()))
        add(lane, bar);
      panel.lanes.push_back(std::move(lane));
    }
    all.panels.push_back(std::move(panel));
  }
  return all;
}

void add_training(Timeline& timeline, const MeasuredRun& run,
                  const std::vector<TrainingStep>& steps) {
  for (const MeasuredOp& op : run.ops) {
    timeline.spans.push_back(
        {op.rank, op.backward ? op.name + " (backward)" : op.name, "", op.begin, op.end});
  }
  for (const TrainingStep& step : steps) {
    for (const StepRank& rank : step.ranks) {
      for (std::size_t b = 0; b < rank.buckets.size(); ++b) {
        const StepBucket& bucket = rank.buckets[b];
        const std::string group = "bucket " + std::to_string(b);
        const std::size_t last = step.last_rank(b);
        timeline.spans.push_back({rank.rank,
                                  bucket.label + "; last gradient " + bucket.held_by +
                                      "; last rank " + std::to_string(step.ranks[last].rank),
                                  group, bucket.begin(), bucket.end() + 1e-9});  // round the phases
        for (const StepBar& bar : bars_of(bucket, step.ranks[last].buckets[b].first_round())) {
          timeline.spans.push_back(
              {rank.rank, std::string(name(bar.part)), group, bar.begin, bar.end});
        }
      }
    }
  }
}

}  // namespace peal::comm
