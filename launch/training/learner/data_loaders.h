// SPDX-License-Identifier: Apache-2.0
// DataLoaders (fastai has them by this name): the loaders of a training and of its validation, with
// the settings that a Learner wants of them: each rank has its share, training batches are shuffled
// and full, and of the validation every sample comes once.
//
//   launch::DataLoaders dls(job, train_set, valid_set, {.batch_size = 64});
//   launch::Learner learner(job, dls, net, {.loss = nn::CrossEntropyLoss{}});
//   learner.get_preds(dls.test_dl(test_set).get());
//
// They live on as long as the learner. Others are made by hand (data/loader.h). Thread safety: the
// rank's thread.
#pragma once

#include <peal/launch/training/learner/learner.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace peal::launch {

struct DataLoadersOptions {
  std::int64_t batch_size = 64;  // of a rank
  // Of the training: samples in an order of each epoch; without those that fill no batch.
  bool shuffle = true, drop_last = true;
  std::optional<std::uint64_t> seed = {};
  int workers = 0;
  Device device = {};
};

class DataLoaders {
 public:
  // No validation: null. Error, on all ranks: fewer samples than a batch of all ranks.
  DataLoaders(const Job& job, data::DatasetRef training, data::DatasetRef validation = nullptr,
              const DataLoadersOptions& options = {});

  // Of loaders that were made otherwise; those of test_dl() are by the options.
  DataLoaders(const Job& job, std::unique_ptr<data::DataLoader> training,
              std::unique_ptr<data::DataLoader> validation, const DataLoadersOptions& options)
      : place_(job.place()),
        options_(options),
        training_(std::move(training)),
        validation_(std::move(validation)) {}

  // This rank's part of the training set, in batches.
  data::DataLoader& train() { return *training_; }
  // REQUIRES: there is one.
  data::DataLoader& valid() { return *validation_; }
  // Of another set, as the validation is: every sample once, in order.
  std::unique_ptr<data::DataLoader> test_dl(data::DatasetRef set) const;
  operator Loaders() & { return {training_.get(), validation_.get()}; }  // NOLINT: a conversion

 private:
  Place place_;
  DataLoadersOptions options_;
  std::unique_ptr<data::DataLoader> training_, validation_;
};

}  // namespace peal::launch
