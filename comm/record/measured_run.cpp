// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/record/measured_run.h>
#include <peal/comm/record/trace_file.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

namespace peal::comm {
namespace {

// What to add to a clock to have rank 0's: a straight line.
class Difference {
 public:
  Difference() = default;
  explicit Difference(const std::vector<ClockBounds>& ends) {
    for (const ClockBounds& b : ends) {
      known_.emplace_back(static_cast<double>(b.at), middle(b.low, b.high));
      uncertainty_ = std::max(uncertainty_, (double(b.high) - double(b.low)) / 2);
    }
  }
  double at(std::int64_t time) const {
    if (known_.empty()) return 0;
    const auto [t0, d0] = known_.front();
    const auto [t1, d1] = known_.back();
    return t0 == t1 ? d0 : d0 + (d1 - d0) * (static_cast<double>(time) - t0) / (t1 - t0);
  }
  double uncertainty() const { return uncertainty_; }

 private:
  static double middle(std::int64_t a, std::int64_t b) { return (double(a) + double(b)) / 2; }
  std::vector<std::pair<double, double>> known_;
  double uncertainty_ = 0;
};

// By clock: that of rank 0 needs nothing, and those of others are as narrow as any of their ranks
// has found, at the start and at the end.
std::map<std::string, Difference> differences(const std::vector<TraceFile>& files) {
  std::map<std::string, std::vector<ClockBounds>> narrowest;
  for (const TraceFile& file : files) {
    if (file.clock == files[0].clock) continue;
    auto& ends = narrowest[file.clock];
    for (std::size_t i = 0; i < file.bounds.size(); ++i) {
      const ClockBounds& b = file.bounds[i];
      if (i == ends.size()) {
        ends.push_back(b);
      } else if (b.high - b.low < ends[i].high - ends[i].low) {
        ends[i] = b;
      }
    }
    PEAL_CHECK(!ends.empty(), "the trace of rank ", file.rank,
               " does not say what its clock shows");
  }
  std::map<std::string, Difference> found;
  found[files[0].clock] = {};
  for (const auto& [clock, ends] : narrowest) found[clock] = Difference(ends);
  return found;
}

// Both sides of a message find each other as in the transport: by group, channel and direction, in
// order.
void match(MeasuredRun& run, const std::vector<double>& uncertainty_of) {
  using Key = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, int, int>;
  struct Side {
    MeasuredStep* step;
    int rank;
  };
  std::map<Key, std::pair<std::deque<Side>, std::deque<Side>>> waiting;  // sends, receives
  for (MeasuredPart& part : run.parts) {
    for (MeasuredStep& s : part.steps) {
      if (s.step.peer == nobody) continue;
      const bool sends = s.step.kind == Kind::send || s.step.kind == Kind::signal;
      const int me = part.rank;
      const int peer = part.group[static_cast<std::size_t>(s.step.peer)];
      auto& [gone, come] = waiting[Key(part.group_id, part.sequence, part.signature,
                                       sends ? me : peer, sends ? peer : me)];
      (sends ? gone : come).push_back({&s, me});
      if (gone.empty() || come.empty()) continue;
      const Side from = gone.front(), to = come.front();
      gone.pop_front();
      come.pop_front();
      Activity &left = from.step->times, &right = to.step->times;
      left.message = right.message = run.messages++;
      const double both = std::max(left.begin, right.begin);
      const auto sure = [&](int rank) { return uncertainty_of[static_cast<std::size_t>(rank)]; };
      for (Activity* side : {&left, &right}) {
        if (side->end == 0) continue;
        side->moves = std::clamp(both, side->begin, side->end);
      }
      if (right.end == 0) continue;
      run.impossible =
          std::max(run.impossible, left.begin - right.end - (sure(from.rank) + sure(to.rank)));
    }
  }
}

Activity shifted(Activity times, double origin, double last) {
  if (times.end == 0) times.moves = times.end = std::max(last, times.begin);
  times.begin -= origin;
  times.moves -= origin;
  times.end -= origin;
  return times;
}

double last_time(const std::vector<const MeasuredPart*>& parts) {
  double last = 0;
  for (const MeasuredPart* part : parts) {
    last = std::max({last, part->begin, part->end});
    for (const MeasuredStep& s : part->steps) last = std::max({last, s.times.begin, s.times.end});
  }
  return last;
}

}  // namespace

MeasuredRun read_measured(const std::string& folder) {
  const auto path = [&](int rank) { return concat(folder, "/rank-", rank, ".trace"); };
  std::vector<TraceFile> files{read_trace_file(path(0))};
  for (int r = 1; r < files[0].world; ++r) files.push_back(read_trace_file(path(r)));
  for (int r = 0; r < files[0].world; ++r) {
    const TraceFile& file = files[static_cast<std::size_t>(r)];
    PEAL_CHECK(file.rank == r && file.world == files[0].world && file.run == files[0].run, path(r),
               ": is of another run than ", path(0));
  }

  MeasuredRun run;
  run.world = files[0].world;
  const auto difference = differences(files);
  std::int64_t origin = std::numeric_limits<std::int64_t>::max();
  std::vector<double> uncertainty_of;
  for (const TraceFile& file : files) {
    const Difference& d = difference.at(file.clock);
    uncertainty_of.push_back(d.uncertainty() * 1e-9);
    run.dropped += file.dropped;
    for (const OpNote& op : file.ops) {
      origin = std::min(origin, op.begin + static_cast<std::int64_t>(std::floor(d.at(op.begin))));
    }
    for (const StepNote& s : file.training) {  // a step begins after 0, which is no time
      if (s.forward == 0) continue;
      origin =
          std::min(origin, s.forward + static_cast<std::int64_t>(std::floor(d.at(s.forward))) - 1);
    }
    for (const auto& o : file.operations) {
      origin = std::min(origin, o.begin + static_cast<std::int64_t>(std::floor(d.at(o.begin))));
    }
  }
  // Two ranks of one clock share its error, so a pair differs most with the two widest clocks.
  std::vector<double> widths;
  for (const auto& [clock, d] : difference) widths.push_back(d.uncertainty() * 1e-9);
  std::ranges::sort(widths, std::greater<>());
  run.uncertainty = widths[0] + (widths.size() > 1 ? widths[1] : 0);

  for (TraceFile& file : files) {
    const Difference& d = difference.at(file.clock);
    const auto seconds = [&](std::int64_t time) {  // 0 stays 0: what has not ended
      if (time == 0) return 0.0;
      return (static_cast<double>(time - origin) + d.at(time)) * 1e-9;
    };
    const std::size_t first = run.parts.size();
    for (auto& o : file.operations) {
      run.parts.push_back({.rank = file.rank,
                           .number = static_cast<std::int32_t>(run.parts.size() - first),
                           .group = file.groups.at(o.group),
                           .group_id = o.group,
                           .sequence = o.sequence,
                           .signature = o.signature,
                           .element = o.element,
                           .begin = seconds(o.begin),
                           .end = seconds(o.end),
                           .algorithm = std::move(o.algorithm),
                           .text = std::move(o.text),
                           .steps = {}});
    }
    for (OpNote& op : file.ops) {
      run.ops.push_back({file.rank, seconds(op.begin), seconds(op.end), op.backward, op.outermost,
                         std::move(op.name)});
    }
    for (const StepNote& s : file.training) {
      run.training.push_back({file.rank, s.model, s.step, seconds(s.forward), seconds(s.backward),
                              seconds(s.visited), seconds(s.end)});
    }
    for (BucketNote& b : file.buckets) {
      run.buckets.push_back({file.rank, b.model, b.step, b.bucket, b.bytes, seconds(b.ready),
                             seconds(b.sent), seconds(b.over), std::move(b.held_by),
                             std::move(b.label), std::move(b.operations)});
    }
    for (const TraceFile::Step& s : file.steps) {
      MeasuredPart& part = run.parts[first + s.operation];
      const auto place = std::ranges::find(part.group, part.rank) - part.group.begin();
      part.steps.push_back({s.step,
                            {.rank = static_cast<int>(place),
                             .kind = s.step.kind,
                             .peer = s.step.peer,
                             .round = s.round,
                             .bytes = std::max(s.step.dst.count, s.step.src.count) * part.element,
                             .begin = seconds(s.begin),
                             .moves = seconds(s.moves),
                             .end = seconds(s.end)}});
    }
  }
  std::ranges::stable_sort(run.parts, {}, &MeasuredPart::begin);
  match(run, uncertainty_of);
  return run;
}

const MeasuredPart& MeasuredCollective::first() const {
  return **std::ranges::find_if(parts, [](const MeasuredPart* part) { return part != nullptr; });
}

std::vector<MeasuredCollective> collectives(const MeasuredRun& run) {
  constexpr auto first_message = std::uint64_t{1} << 63;  // as in process_group.cpp
  std::map<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>, std::size_t> known;
  std::vector<MeasuredCollective> all;
  for (const MeasuredPart& part : run.parts) {
    if (part.sequence >= first_message) continue;
    const auto [place, fresh] =
        known.try_emplace({part.group_id, part.sequence, part.signature}, all.size());
    if (fresh) {
      all.emplace_back();
      all.back().parts.resize(part.group.size());
      all.back().begin = part.begin;
      all.back().end = part.end;
    }
    MeasuredCollective& collective = all[place->second];
    const auto rank = std::ranges::find(part.group, part.rank) - part.group.begin();
    collective.parts[static_cast<std::size_t>(rank)] = &part;
    collective.begin = std::min(collective.begin, part.begin);
    const bool ended = part.ended() && collective.end != 0;
    collective.end = ended ? std::max(collective.end, part.end) : 0;
    for (const MeasuredStep& s : part.steps) {
      const bool reaches_out = s.step.dst.owner != self || s.step.src.owner != self;
      if (s.step.kind == Kind::send || reaches_out) collective.bytes += s.times.bytes;
    }
  }
  return all;
}

Timeline timeline(const MeasuredRun& run) {
  Timeline all{run.world, {}, {}};
  std::vector<const MeasuredPart*> parts;
  for (const MeasuredPart& part : run.parts) parts.push_back(&part);
  const double last = last_time(parts);
  for (const MeasuredPart& part : run.parts) {
    all.operations.push_back({part.rank, part.text, part.begin, part.ended() ? part.end : last});
    for (const MeasuredStep& s : part.steps) {
      Activity times = shifted(s.times, 0, last);
      times.rank = part.rank;
      if (times.peer != nobody) times.peer = part.group[static_cast<std::size_t>(times.peer)];
      all.activities.push_back(times);
    }
  }
  return all;
}

Timeline timeline(const MeasuredCollective& collective) {
  Timeline all{static_cast<int>(collective.parts.size()), {}, {}};
  std::vector<const MeasuredPart*> parts;
  for (const MeasuredPart* part : collective.parts) {
    if (part != nullptr) parts.push_back(part);
  }
  const double last = last_time(parts);
  for (std::size_t r = 0; r < collective.parts.size(); ++r) {
    const MeasuredPart* part = collective.parts[r];
    if (part == nullptr) continue;
    all.operations.push_back({static_cast<int>(r), part->text, part->begin - collective.begin,
                              (part->ended() ? part->end : last) - collective.begin});
    for (const MeasuredStep& s : part->steps) {
      all.activities.push_back(shifted(s.times, collective.begin, last));
    }
  }
  return all;
}

std::vector<Program> programs(const MeasuredCollective& collective) {
  std::vector<Program> all(collective.parts.size());
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (collective.parts[r] == nullptr) continue;
    for (const MeasuredStep& s : collective.parts[r]->steps) {
      auto& rounds = all[r].rounds;
      const auto round = static_cast<std::size_t>(s.times.round);
      if (rounds.size() <= round) rounds.resize(round + 1);
      rounds[round].push_back(s.step);
    }
  }
  return all;
}

}  // namespace peal::comm
