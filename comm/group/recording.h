// SPDX-License-Identifier: Apache-2.0
// Recording: what a group's collectives took on this rank, between two moments, for who measures
// (nn/parallel/step_clock.h). Under PEAL_TRACE it reads the records that are taken anyway, and what
// is noted comes into the file; else records are taken from begin() to end(), in memory that goes
// then. Several of one group may be under way at a time: each finds its own collectives by the tags
// of their labels. Thread safety: the thread that issues collectives.
#pragma once

#include <peal/comm/group/process_group.h>
#include <peal/comm/record/recorder.h>

#include <memory>
#include <utility>
#include <vector>

namespace peal::comm {

class Recording {
 public:
  explicit Recording(ProcessGroup group) : group_(std::move(group)) {}
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // Whether PEAL_TRACE records the group: the same on all ranks.
  static bool is_traced(const ProcessGroup& group);

  // Begins anew where it has begun.
  void begin();
  // What has ended since. Not `whole`: for some of it there was no room.
  struct Found {
    std::vector<Recorder::Ended> collectives{};
    bool whole = false;
  };
  Found end();
  // Into the file, where there is one, and there was room for all from begin() to end(). After
  // end().
  template <class Note>
  void note(Note note) {
    if (file_) file_->note(std::move(note));
  }

 private:
  void leave();

  ProcessGroup group_;
  std::shared_ptr<Recorder> recorder_;  // from begin() to end()
  std::shared_ptr<Recorder> file_;      // from end() on
  Recorder::Mark from_;
};

}  // namespace peal::comm
