// SPDX-License-Identifier: Apache-2.0
// Dispatcher: one rank reads for all (Accelerate: dispatch_batches), where a data set is to be had
// on one machine alone. Rank 0's loader makes the batches of all ranks, in turn, and each goes to
// its rank as it is made: a rank receives its own share and nothing else, and batches may differ in
// shape.
//
//   std::unique_ptr<data::DataLoader> reader;
//   if (job.is_main()) {
//     reader = std::make_unique<data::DataLoader>(set, [=, world = job.world()](std::int64_t epoch)
//     {
//       const auto order = data::shard(set->size(), 1, 0, {.epoch = epoch});
//       return data::dispatch_order(data::in_batches(order, 32), 32, world);
//     });
//   }
//   launch::Dispatcher batches(job.group(), std::move(reader));
//   while (auto batch = batches.next()) ...
//
// Thread safety: as of the group.
#pragma once

#include <peal/comm/group/process_group.h>
#include <peal/data/loader.h>

#include <memory>
#include <optional>

namespace peal::launch {

class Dispatcher {
 public:
  // Error where rank 0 has no reader, or another has one.
  Dispatcher(comm::ProcessGroup group, std::unique_ptr<data::DataLoader> reader);

  // This rank's next batch, on the CPU, or nothing at the end of an epoch, for all ranks alike. All
  // ranks call it equally often. Error where the reader's epoch ends within a round.
  std::optional<data::Batch> next();

 private:
  comm::ProcessGroup group_;
  std::unique_ptr<data::DataLoader> reader_;
};

}  // namespace peal::launch
