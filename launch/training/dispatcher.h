// SPDX-License-Identifier: Apache-2.0
// Dispatcher: one rank reads for all (Accelerate: dispatch_batches), where a data set is to be had
// on one machine alone. Rank 0's loader makes the batches of all ranks, in turn, and each goes to
// its rank as it is made: a rank receives its own share and nothing else, and batches may differ in
// shape.
//
//   const data::DatasetRef set = job.is_main() ? open_the_file() : nullptr;
//   launch::Dispatcher batches(job.group(), set, {.batch_size = 32, .shuffle = true});
//   while (auto batch = batches.next()) ...
//
// Or rank 0 has a loader whose plan is data::dispatch_order(), or a stream of batches. Where it has
// a device, batches come on the CPU all the same.
//
// Thread safety: as of the group.
#pragma once

#include <peal/comm/group/process_group.h>
#include <peal/data/loader.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace peal::launch {

class DispatchReader;

class Dispatcher {
 public:
  // Rank 0 reads the set, which no other rank gives, by data::Way::dispatched: options are those of
  // a loader, batch_size, workers and prefetch for each rank. Collective, as the others are.
  // Errors: where rank 0 has no set, or another has one, shard, way or exact in the options.
  Dispatcher(comm::ProcessGroup group, const data::DatasetRef& dataset,
             const data::LoaderOptions& options);
  // By rank 0's loader, whose plan has the batches of all ranks in turn. Error where rank 0 has no
  // reader, or another has one.
  Dispatcher(comm::ProcessGroup group, std::unique_ptr<data::DataLoader> reader);
  // By a stream on rank 0, whose batches go to the ranks in turn. Its end is the end of an epoch,
  // after which it may begin again; in a last round that it does not fill, ranks get its first
  // batches again, or with drop_last it goes unseen. Errors as above.
  static Dispatcher of_stream(comm::ProcessGroup group,
                              std::function<std::optional<data::Batch>()> source,
                              bool drop_last = false);
  Dispatcher(Dispatcher&& other) noexcept;
  ~Dispatcher();

  // This rank's next batch, on the CPU, or nothing at the end of an epoch, for all ranks alike. All
  // ranks call it equally often. Errors are all ranks', and the group is of no further use: what
  // rank 0's reader throws, and where its epoch ends within a round.
  std::optional<data::Batch> next();

  // Where the samples of the last batch stand in the order of all ranks in this epoch, -1 for those
  // that come again (data::DataLoader::places()). Error by a loader whose plan is the program's.
  const std::vector<std::int64_t>& places() const;

  // Each rank's batches of the epoch that comes or is open. Error of a stream, which does not say.
  bool has_size() const { return size_ >= 0; }
  std::int64_t size() const;
  std::int64_t epoch() const { return epoch_; }
  // The epoch to open next, from its start. Collective. Error of a stream that was begun.
  void set_epoch(std::int64_t epoch);
  // Leaves out the next `count` batches of each rank, which only of a stream are read. Collective.
  // Error on all ranks where the epoch has fewer.
  void skip_first_batches(std::int64_t count);
  // Where the epoch is: rank 0's, the others' is empty. By a set it is taken up in any world, by a
  // stream too, which is read again from its start; a loader's plan is for one world.
  NamedTensors state_dict() const;
  // Collective; what is not rank 0's is not read.
  void load_state_dict(const NamedTensors& state);

 private:
  using Make = std::function<std::unique_ptr<DispatchReader>()>;
  Dispatcher(comm::ProcessGroup group, const Make& make, const char* what);
  std::optional<data::Batch> send_round();
  void tell_after(const std::function<void()>& f);

  comm::ProcessGroup group_;
  std::unique_ptr<DispatchReader> reader_;  // rank 0's
  std::int64_t epoch_ = 0, size_ = 0;       // on every rank
  std::vector<std::int64_t> places_;
};

}  // namespace peal::launch
