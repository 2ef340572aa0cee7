// SPDX-License-Identifier: Apache-2.0
// A measured run: the files that PEAL_TRACE left (recorder.h), on one clock and with their messages
// matched, so that it is drawn like a simulated one and compared with it.
//
// Clocks. Every file bounds by how much rank 0's clock was ahead, at the start and at the end
// (process_group_trace.cpp). Ranks that read the same clock share the narrowest of their bounds; in
// between the difference is taken to run straight from the middle of the first bounds to the middle
// of the last. What is left open is half their width: `uncertainty`. Causality checks it: no
// message can have been received before its send began.
//
// Messages. A round's messages are known to be over together, so `end` is that of the last one. A
// message moves, as in the simulator, when both sides are in their rounds. Thread safety: values.
#pragma once

#include <peal/comm/draw/timeline.h>
#include <peal/comm/schedule/schedule.h>

#include <cstdint>
#include <string>
#include <vector>

namespace peal::comm {

struct MeasuredStep {
  Step step;
  Activity times;  // `rank` and `peer` are those of the group; `end` is 0 if it never ended
};

// What one rank did in one operation.
struct MeasuredPart {
  int rank = 0;                // of the world
  std::int32_t number = 0;     // of the operation, among those of its rank
  std::vector<int> group;      // the world's ranks in it
  std::uint64_t group_id = 0;  // the same for all its ranks
  std::uint64_t sequence = 0, signature = 0;
  std::int64_t element = 1;   // bytes
  double begin = 0, end = 0;  // seconds from the run's first record; end 0: it never ended
  std::string algorithm, text;
  std::vector<MeasuredStep> steps;

  bool ended() const { return end != 0; }
};

// What training noted on a rank, in seconds as above, 0 where there is no time.
struct MeasuredOp {
  int rank = 0;
  double begin = 0, end = 0;
  bool backward = false, outermost = true;
  std::string name;
};
struct MeasuredTraining {
  int rank = 0;
  std::uint64_t model = 0, step = 0;
  double forward = 0, backward = 0, visited = 0, end = 0;
};
struct MeasuredBucket {
  int rank = 0;
  std::uint64_t model = 0, step = 0;
  std::int64_t bucket = 0, bytes = 0;
  double ready = 0, sent = 0, over = 0;
  std::string held_by, label;
  std::vector<std::int32_t> operations;
};

struct MeasuredRun {
  int world = 0;
  double uncertainty = 0;     // seconds, of the difference of any two ranks' times
  double impossible = 0;      // by how much a message came before it was sent, beyond that, or 0
  std::int64_t messages = 0;  // both of whose sides are recorded
  std::int64_t dropped = 0;   // records that had no room
  std::vector<MeasuredPart> parts;  // in order of their begin
  std::vector<MeasuredOp> ops;
  std::vector<MeasuredTraining> training;
  std::vector<MeasuredBucket> buckets;
};

// Reads rank-0.trace and those of the other ranks that it speaks of. Error that names the file, and
// the line, where one is missing, cut short, of another run, or not a trace.
MeasuredRun read_measured(const std::string& folder);

// A collective with what each of its ranks did in it, by number in the group. Views into a run.
struct MeasuredCollective {
  std::vector<const MeasuredPart*> parts;  // null where the rank has no record
  double begin = 0, end = 0;               // of the first, of the last; end 0: not all have ended
  std::int64_t bytes = 0;                  // moved in messages, and to or from others' memory
  const MeasuredPart& first() const;       // the first that is there
};
// In order of their begin. Messages between two ranks are none.
std::vector<MeasuredCollective> collectives(const MeasuredRun& run);

// The whole run, with the ranks of the world; and one collective, with those of its group, from its
// first begin. What never ended is drawn until the last time that is known.
Timeline timeline(const MeasuredRun& run);
Timeline timeline(const MeasuredCollective& collective);
// The programs that ran; for a collective of the transport's own they are empty.
std::vector<Program> programs(const MeasuredCollective& collective);

}  // namespace peal::comm
