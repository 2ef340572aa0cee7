// SPDX-License-Identifier: Apache-2.0
// Loaders of a loop (loop.h) on several ranks: one that is whole is replaced by this rank's part of
// it, the same one whenever it is asked for, and ranks agree that what they have fits together.
// Thread safety: the rank's thread.
#pragma once

#include <peal/data/loader.h>
#include <peal/launch/job.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace peal::launch {

// Where a run begins: in which epoch, and after how many of its batches. The training loader stands
// there: its state was loaded (load_state_dict), or they were left out (skip_first_batches). An
// epoch that was left is over for a run that begins with one.
struct Start {
  int epoch = 0;
  std::int64_t iter = 0;
};

class Shares {
 public:
  // To learn from: ranks have equally many batches, as each is a step of all; of a whole one they
  // share them out that way (batches, split). A part of a whole one begins in the epoch of that,
  // after start.iter batches. Collective. Errors, on all ranks: a share of another rank's, starts
  // or numbers of batches that differ, a share that does not stand there.
  data::DataLoader& to_train(const Job& job, data::DataLoader& loader, Start start, data::Way way);
  // To validate with, each sample once. Collective. Errors, on all ranks: a share of another
  // rank's, or one in which samples come again.
  data::DataLoader& to_validate(const Job& job, data::DataLoader& loader);
  // After its share's epoch a whole loader stands where it would stand after its own, so that
  // set_epoch() of it is heard.
  void go_on(data::DataLoader& whole, const data::DataLoader& share);

 private:
  data::DataLoader& of(const Job& job, data::DataLoader& loader, data::Way way, bool exact);

  // By the whole loader that each is made of, which may be gone, and another one in its place.
  struct Made {
    const data::DataLoader* whole;
    std::int64_t epoch;  // of the whole one, when it was last given
    std::unique_ptr<data::DataLoader> share;
  };
  std::vector<Made> made_;
};

}  // namespace peal::launch
