// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/training/learner/data_loaders.h>

#include <utility>

namespace peal::launch {

DataLoaders::DataLoaders(const Job& job, data::DatasetRef training, data::DatasetRef validation,
                         const DataLoadersOptions& options)
    : place_(job.place()),
      options_(options),
      training_(std::make_unique<data::DataLoader>(std::move(training),
                                                   data::LoaderOptions{
                                                       .batch_size = options.batch_size,
                                                       .shuffle = options.shuffle,
                                                       .shard = job.place(),
                                                       .seed = options.seed,
                                                       .workers = options.workers,
                                                       .drop_last = options.drop_last,
                                                       .device = options.device,
                                                   })) {
  PEAL_CHECK(training_->size() > 0, "[launch] learner: there are ", training_->dataset().size(),
             " samples to train with, which fill no batch of ", options.batch_size, " on each of ",
             job.world(), " ranks; take a smaller one");
  if (validation) validation_ = test_dl(std::move(validation));
}

std::unique_ptr<data::DataLoader> DataLoaders::test_dl(data::DatasetRef set) const {
  return std::make_unique<data::DataLoader>(std::move(set), data::LoaderOptions{
                                                                .batch_size = options_.batch_size,
                                                                .shard = place_,
                                                                .workers = options_.workers,
                                                                .exact = true,
                                                                .device = options_.device,
                                                            });
}

}  // namespace peal::launch
