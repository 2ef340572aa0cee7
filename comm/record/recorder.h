// SPDX-License-Identifier: Apache-2.0
// Recorder: event tracing: what a rank's collectives did and when, for PEAL_TRACE. A step leaves a
// record of its times in memory that is reserved at the start; the file is written once, at the
// end. Records say what began, too: after a failure the file shows what a rank was waiting for.
//
// The file DIR/rank-R.trace is text, a record a line, times in nanoseconds of this rank's steady
// clock; measured_run.h reads the files of all ranks and brings them onto one clock:
//
//   peal-trace 1
//   run ID                 the same in all files of a run
//   rank R of WORLD
//   clock NAME             ranks whose clocks have equal names read the same clock
//   bounds AT LOW HIGH     rank 0's clock minus this one lay within LOW..HIGH at AT
//   group ID RANK...       its ranks in the world
//   operation GROUP SEQUENCE SIGNATURE ELEMENT BEGIN END ALGORITHM TEXT...
//   step OPERATION ROUND KIND PEER COUNT DST AT SRC AT BEGIN MOVES END
//   op forward|backward DEPTH BEGIN END NAME...          of training: training_notes.h
//   training MODEL STEP FORWARD BACKWARD VISITED END
//   bucket MODEL STEP BUCKET BYTES READY SENT OVER HELD_BY OPERATIONS LABEL...
//   dropped N              records that had no room
//   end
//
// GROUP is an ID; OPERATION counts the operations of the file from 0. ELEMENT is bytes on the wire;
// MOVES is when a copy or reduction began; END is 0 where something has not ended; OPERATIONS are
// those of the bucket, "3,5", or "-". Thread safety: the engine's lock; what is public besides
// begin, begin_round and end is for the thread that issues collectives, while no other advances.
//
// One without a file keeps its records, for who asks by ended(); several may read it at a time.
#pragma once

#include <peal/comm/record/bucket_phases.h>
#include <peal/comm/record/training_notes.h>
#include <peal/comm/transport/transport.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace peal::comm {

// How far rank 0's clock was ahead of this rank's, in nanoseconds, when this one showed `at`.
struct ClockBounds {
  std::int64_t at = 0, low = 0, high = 0;
};

// The times of a step, filled in by whoever runs it.
struct StepTimes {
  const Step* step;
  std::int64_t begin, moves, end;
  std::int32_t operation, round;
  std::int32_t peer;  // who it was, where the step says any_source
};

class Recorder {
 public:
  static std::int64_t now();  // nanoseconds
  static constexpr std::int32_t nothing = -1;

  // Whether one of this process has files to write there.
  static bool writes_to(const std::string& folder);

  // Makes the folder where it is missing. Error where the file cannot be opened for writing.
  Recorder(const std::string& folder, int rank, int world);
  // Without a file, and recording at once; with room for so many.
  Recorder(std::size_t operations, std::size_t steps);

  // `run` is equal on all ranks. Records are taken from here on.
  void start(std::int64_t run);
  void add_bounds(const ClockBounds& bounds) { bounds_.push_back(bounds); }
  void add_group(std::uint64_t id, std::vector<int> members);
  // Takes no more records, and writes the file. Error where that fails. Once.
  void write();
  // What training notes, for the file.
  void note(OpNote op) { ops_.push_back(std::move(op)); }
  void note(const StepNote& step) { steps_.push_back(step); }
  void note(BucketNote bucket) { buckets_.push_back(std::move(bucket)); }

  // How much it holds; the operations since then that have ended; and whether there was room for
  // all since.
  struct Mark {
    std::size_t operations = 0, steps = 0, dropped = 0;
  };
  struct Ended {
    std::int32_t operation = nothing;
    std::uint64_t purpose = 0;
    CollectiveTime time{};
  };
  Mark mark() const { return {operations_.size(), used_, dropped_}; }
  std::vector<Ended> ended(const Mark& since) const;
  bool whole_since(const Mark& mark) const { return dropped_ == mark.dropped; }
  bool half_full() const {
    return operations_.size() > most_operations_ / 2 || used_ > most_steps_ / 2;
  }
  bool has_file() const { return !path_.empty(); }
  void join() { ++readers_; }
  bool leave() { return --readers_ == 0; }  // nobody reads it any more
  // Another one takes the records from now on: to who still reads this one, some are missing.
  void give_up() { ++dropped_; }

  // Between start() and write().
  bool recording() const { return recording_; }
  // The number that the other two want, or `nothing`. `purpose` is its label's tag, `text` says
  // what the operation is; the program is null where the transport's library has the collective
  // itself.
  std::int32_t begin(std::uint64_t group, Channel channel, std::uint64_t purpose, std::string text,
                     std::string algorithm, std::shared_ptr<const Program> program,
                     std::size_t element);
  // Its later rounds are of another program, which begins alike.
  void goes_on(std::int32_t operation, std::string algorithm,
               std::shared_ptr<const Program> program);
  // Room for the round's steps in their order, begun now; null where there is none. The times stay
  // where they are. REQUIRES: the round is of the operation's program.
  StepTimes* begin_round(std::int32_t operation, std::size_t round, const Round& steps);
  void end(std::int32_t operation);

 private:
  struct Entry {
    std::uint64_t group = 0;
    Channel channel;
    std::uint64_t purpose = 0;
    std::string text, algorithm;
    std::shared_ptr<const Program> program;  // of which steps are named
    std::size_t element = 1;
    std::int64_t begin = 0, end = 0;
  };
  void write_notes(std::FILE* file) const;

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::shared_ptr<const std::string> folder_;  // until it is written
  int rank_, world_;
  std::unique_ptr<std::FILE, Close> file_;
  bool recording_ = false;
  std::int64_t run_ = 0;
  std::vector<ClockBounds> bounds_;
  std::vector<std::pair<std::uint64_t, std::vector<int>>> groups_;
  std::size_t most_operations_, most_steps_;
  std::vector<Entry> operations_;
  std::unique_ptr<StepTimes[]> times_;
  std::size_t used_ = 0, dropped_ = 0;
  int readers_ = 0;
  std::vector<OpNote> ops_;
  std::vector<StepNote> steps_;
  std::vector<BucketNote> buckets_;
};

}  // namespace peal::comm
