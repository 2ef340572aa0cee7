// SPDX-License-Identifier: Apache-2.0
// Temporary folder of the ranks: what they save lies in it (TMPDIR), and it goes however they and
// this process have ended: by SIGKILL, too, for a process beside it removes it, once the last that
// has its end of a pipe is gone (warden.h). Thread safety: the main thread of a process that has no
// other, before it starts ranks.
#pragma once

#include <peal/launch/run/child.h>

#include <sys/types.h>

#include <string>

namespace peal::launch {

class RanksFolder {
 public:
  // Where none can be made there is none: a rank will say so.
  RanksFolder();
  ~RanksFolder();
  RanksFolder(const RanksFolder&) = delete;
  RanksFolder& operator=(const RanksFolder&) = delete;

 private:
  std::string before_, path_;
  OpenFile here_;  // as long as it is open
  pid_t remover_ = -1;
};

}  // namespace peal::launch
