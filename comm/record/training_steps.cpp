// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/record/training_steps.h>

#include <algorithm>
#include <limits>
#include <map>
#include <span>
#include <utility>

namespace peal::comm {
namespace {

CollectiveTime time_of(const MeasuredPart& part) {
  CollectiveTime time{.begin = part.begin, .first = part.begin, .end = part.end};
  bool begun = false;
  for (const MeasuredStep& s : part.steps) {
    time.first = begun ? std::min(time.first, s.times.begin) : s.times.begin;
    begun = true;
    time.count(s.step, s.times.moves, s.times.end);
  }
  return time;
}

// What a run has of one rank; ops in order of begin.
struct OfRank {
  std::map<std::int32_t, const MeasuredPart*> parts;  // by number
  std::vector<const MeasuredOp*> ops;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<const MeasuredBucket*>> buckets;
};

std::map<int, OfRank> by_rank(const MeasuredRun& run) {
  std::map<int, OfRank> all;
  for (const MeasuredPart& part : run.parts) {
    if (part.ended()) all[part.rank].parts[part.number] = &part;
  }
  for (const MeasuredOp& op : run.ops) {
    if (op.outermost) all[op.rank].ops.push_back(&op);
  }
  for (const MeasuredBucket& bucket : run.buckets) {
    all[bucket.rank].buckets[{bucket.model, bucket.step}].push_back(&bucket);
  }
  for (auto& [rank, its] : all) std::ranges::sort(its.ops, {}, &MeasuredOp::begin);
  return all;
}

// Those that began between the two.
template <class T>
std::span<const T* const> between(const std::vector<const T*>& all, double from, double to) {
  const auto begin = [](const T* each) { return each->begin; };
  const auto first = std::ranges::lower_bound(all, from, {}, begin);
  return {first, std::ranges::upper_bound(first, all.end(), to, {}, begin)};
}

// With what ran for it.
StepBucket bucket_of(const MeasuredBucket& noted, const OfRank& rank) {
  StepBucket bucket{.bytes = noted.bytes,
                    .label = noted.label,
                    .held_by = noted.held_by,
                    .time = {noted.ready, noted.sent, noted.over, {}},
                    .phases = {}};
  for (const std::int32_t number : noted.operations) {
    const auto part = rank.parts.find(number);
    if (part != rank.parts.end()) bucket.time.collectives.push_back(time_of(*part->second));
  }
  bucket.phases = phases(bucket.time);
  return bucket;
}

// On a clock that all share nobody's transfer begins before the last rank is there.
void find_slowest(TrainingStep& step) {
  std::size_t buckets = 0;
  for (const StepRank& rank : step.ranks) buckets = std::max(buckets, rank.buckets.size());
  for (std::size_t b = 0; b < buckets; ++b) {
    std::vector<double> last;  // by collective of the bucket
    for (const StepRank& rank : step.ranks) {
      if (b >= rank.buckets.size()) continue;
      const auto& all = rank.buckets[b].time.collectives;
      last.resize(std::max(last.size(), all.size()), -std::numeric_limits<double>::infinity());
      for (std::size_t c = 0; c < all.size(); ++c) last[c] = std::max(last[c], all[c].first);
    }
    for (StepRank& rank : step.ranks) {
      if (b >= rank.buckets.size()) continue;
      StepBucket& bucket = rank.buckets[b];
      for (std::size_t c = 0; c < bucket.time.collectives.size(); ++c) {
        const CollectiveTime& one = bucket.time.collectives[c];
        bucket.slowest += std::clamp(last[c], one.first, one.end) - one.first;
      }
      bucket.slowest = std::min(bucket.slowest, bucket.phases.transfer);
    }
  }
}

}  // namespace

double TrainingStep::begin() const {
  double first = std::numeric_limits<double>::infinity();
  for (const StepRank& rank : ranks) {
    for (const double time : {rank.times.forward, rank.times.backward, rank.times.visited}) {
      if (time != 0) first = std::min(first, time);
    }
  }
  return first;
}

double TrainingStep::end() const {
  double last = 0;
  for (const StepRank& rank : ranks) last = std::max(last, rank.times.end);
  return last;
}

std::size_t TrainingStep::last_rank(std::size_t bucket) const {
  const auto first_round = [&](std::size_t r) { return ranks[r].buckets[bucket].first_round(); };
  std::size_t last = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (first_round(r) > first_round(last)) last = r;
  }
  return last;
}

std::vector<TrainingStep> training_steps(const MeasuredRun& run) {
  std::map<int, OfRank> ranks = by_rank(run);
  std::map<std::pair<std::uint64_t, std::uint64_t>, TrainingStep> all;
  for (const MeasuredTraining& times : run.training) {
    TrainingStep& step = all[{times.model, times.step}];
    step.model = times.model;
    step.step = times.step;
    StepRank rank{.rank = times.rank, .times = times, .ops = {}, .buckets = {}};
    const OfRank& its = ranks[times.rank];
    const double begin = times.forward != 0 ? times.forward : times.backward;
    for (const MeasuredOp* op : between(its.ops, begin, times.end)) rank.ops.push_back(*op);
    const auto noted = its.buckets.find({times.model, times.step});
    if (noted != its.buckets.end()) {
      for (const MeasuredBucket* bucket : noted->second) {
        rank.buckets.push_back(bucket_of(*bucket, its));
      }
    }
    step.ranks.push_back(std::move(rank));
  }
  std::vector<TrainingStep> steps;
  for (auto& [key, step] : all) {
    find_slowest(step);
    steps.push_back(std::move(step));
  }
  std::ranges::sort(steps, {}, &TrainingStep::begin);
  return steps;
}

const TrainingStep& median_step(const std::vector<TrainingStep>& steps) {
  std::vector<const TrainingStep*> order;
  for (const TrainingStep& step : steps) order.push_back(&step);
  std::ranges::stable_sort(order, {},
                           [](const TrainingStep* step) { return step->end() - step->begin(); });
  return *order[order.size() / 2];
}

}  // namespace peal::comm
