// SPDX-License-Identifier: Apache-2.0
// The loader of a stream: batches of a data set that is read from one end to the other
// (stream_dataset.h). Ranks share its parts, and so do the readers of each rank: no sample is read
// twice, and none by another than it goes to.
//
//   data::StreamLoader loader(std::make_shared<Lines>(paths),
//                             {.batch_size = 32, .place = job.place(), .readers = 4, .workers =
//                             2});
//   for (int epoch = 0; epoch < epochs; ++epoch) {
//     while (const auto batch = loader.next()) step(batch->x, batch->y);
//   }
//
// Each reader has some of the parts, one after the other, and gives a batch in turn; at its end one
// that is shorter. How many readers a rank has decides what is in a batch; how many worker threads
// serve them does not. As nobody knows how long parts are, ranks differ in the number of their
// batches: nn::Join. Thread safety: a loader belongs to one thread.
#pragma once

#include <peal/autograd/core/place.h>
#include <peal/autograd/core/safetensors.h>
#include <peal/data/stream_dataset.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace peal {
class StateReader;
}

namespace peal::data {

class StreamLanes;

struct StreamLoaderOptions {
  std::int64_t batch_size = 1;  // a rank
  Place place{};
  int readers = 1;         // a rank; each has a part of the stream open
  int workers = 0;         // threads, at most one a reader; 0: whoever asks reads
  int prefetch = 2;        // batches ahead, a reader
  bool drop_last = false;  // leaves out a reader's last batch where it is short
  bool shuffle = false;    // the order of the parts, another in each epoch
  std::uint64_t seed = 0;  // of that and of augmentation, equal on all ranks
  // So many samples of an epoch, of this rank, may be bad (BadStreamSample): each is named in the
  // log and passed over; one more is an error. 0: the first one is.
  std::int64_t max_bad_samples = 0;
};

class StreamLoader {
 public:
  // Errors: no data set, a place outside of its world, batch_size, readers or prefetch < 1, workers
  // or max_bad_samples < 0, more workers than readers.
  explicit StreamLoader(std::shared_ptr<const StreamDataset> dataset,
                        const StreamLoaderOptions& options = {});
  ~StreamLoader();
  StreamLoader(const StreamLoader&) = delete;
  StreamLoader& operator=(const StreamLoader&) = delete;

  // The next batch of the epoch, or nothing at its end, after which the next call begins another.
  // Error: what reading threw, with the sample and the part; after one, every call throws it again,
  // until set_epoch() or load_state_dict().
  std::optional<Batch> next();
  const StreamLoaderOptions& options() const { return options_; }
  // Those that were passed over in the epoch that is open or was open last, since it was opened.
  const std::vector<PassedOver>& bad_samples() const { return bad_samples_; }
  // Whether a batch of epoch() is still to come, as DataLoader::has_next(), or an error; reads it
  // to know.
  bool has_next();
  std::int64_t epoch() const { return epoch_; }
  // The epoch to open next, from its start.
  void set_epoch(std::int64_t epoch);
  // Leaves out the next batches of epoch(), which are read. Error where it has fewer.
  void skip_first_batches(std::int64_t count);

  // How far each part was read, by this rank's readers. Of all ranks, merged (merge_states()), it
  // is the place of all: a loader of the same set goes on there in any world and with any number of
  // readers, with each part from where it was left; with the same ones, batch for batch. To be
  // taken while all ranks are in one epoch.
  NamedTensors state_dict() const;
  // Reads merged states; in a world of one its own, too. Error for a state within a part whose
  // samples come in another order here: of another window, or of another seed where there is one.
  void load_state_dict(const NamedTensors& state);
  // Each tensor's greatest elements: the ranks' states as one, and so
  // group.all_reduce(tensor, comm::ReduceOp::max) of each is, too, which does not see that epochs
  // differ. Error for none, or of other sets, epochs or numbers of readers.
  static NamedTensors merge_states(std::span<const NamedTensors> states);

 private:
  StreamLanes& lanes();
  void begin(std::int64_t epoch);
  void check_order(StateReader& reader, const Tensor& taken) const;
  void note_bad(const std::vector<PassedOver>& bad);

  std::shared_ptr<const StreamDataset> dataset_;
  StreamLoaderOptions options_;
  std::int64_t epoch_ = 0;
  std::int64_t turn_ = 0;
  // By part: how far it was read, when it was dealt to the readers, and since.
  std::vector<std::int64_t> dealt_, taken_;
  std::unique_ptr<StreamLanes> lanes_;
  std::vector<PassedOver> bad_samples_;
  std::exception_ptr failure_;  // one bad sample too many
};

}  // namespace peal::data
