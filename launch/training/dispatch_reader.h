// SPDX-License-Identifier: Apache-2.0
// What rank 0 of a Dispatcher reads for all: a set, of which one loader makes the batches of all
// ranks in turn, a loader whose plan has these, or a stream. Thread safety: as of a loader.
#pragma once

#include <peal/data/loader.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace peal::launch {

class DispatchReader {
 public:
  virtual ~DispatchReader() = default;
  // The next batch of that rank, or nothing at the end of an epoch. Asked for rank 0, 1, and so on.
  virtual std::optional<data::Batch> next(int rank) = 0;
  // Where the samples of the last one stand in the order of the epoch, -1 for those that come
  // again; none where nobody knows.
  virtual std::vector<std::int64_t> places() const { return {}; }
  // Batches of a rank in the epoch that is open or comes; -1 where nobody knows.
  virtual std::int64_t size() const = 0;
  virtual std::int64_t epoch() const = 0;
  virtual void set_epoch(std::int64_t epoch) = 0;
  virtual void skip_first_batches(std::int64_t count) = 0;  // of each rank
  virtual NamedTensors state_dict() const = 0;
  virtual void load_state_dict(const NamedTensors& state) = 0;
};

std::unique_ptr<DispatchReader> reader_of_set(const data::DatasetRef& dataset,
                                              const data::LoaderOptions& options, int world);
std::unique_ptr<DispatchReader> reader_of_loader(std::unique_ptr<data::DataLoader> loader,
                                                 int world);
std::unique_ptr<DispatchReader> reader_of_stream(std::function<std::optional<data::Batch>()> source,
                                                 bool drop_last, int world);

}  // namespace peal::launch
