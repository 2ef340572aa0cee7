// SPDX-License-Identifier: Apache-2.0
// Recording: what a group's collectives took on this rank, between two moments, for who measures
// (nn/parallel/step_clock.h). Under PEAL_TRACE it reads the records that are taken anyway, and what
// is noted comes into the file; else records are taken from begin() to end(), in memory that goes
// then. Thread safety: the
// thread that issues collectives.
#pragma once

#include <peal/comm/group/process_group.h>
#include <peal/comm/record/recorder.h>

#include <memory>
#include <string>
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
  // What has ended since, with what it says of itself, its label too.
  std::vector<std::pair<std::string, CollectiveTime>> end();
  // Into the file, where there is one; between begin() and end().
  template <class Note>
  void note(Note note) {
    if (traced_) traced_->note(std::move(note));
  }

 private:
  ProcessGroup group_;
  std::shared_ptr<Recorder> own_, traced_;  // one of them, or none
  Recorder::Mark from_;
};

}  // namespace peal::comm
