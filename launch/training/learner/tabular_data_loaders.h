// SPDX-License-Identifier: Apache-2.0
// TabularDataLoaders (fastai has it by this name): from a CSV file to the loaders of a training and
// of its validation, in one call: some rows are the validation, the others say what words columns
// have, what stands in for missing numbers and how numbers are scaled.
//
//   auto dls = launch::TabularDataLoaders::from_csv(job, "adult.csv",
//       {.categories = {"workclass", "education"}, .numbers = {"age"}, .target = "salary"});
//   auto learner = launch::tabular_learner(job, dls, {.tell = launch::print});
//   learner.fit_one_cycle(3);
//   learner.get_preds(dls.test_dl(data::read_table("others.csv")).get());
//
// Collective: ranks read the same rows, or all get an Error. Thread safety: the rank's thread.
#pragma once

#include <peal/data/tables/encoded.h>
#include <peal/launch/training/learner/data_loaders.h>
#include <peal/launch/training/learner/tabular.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace peal::launch {

struct TabularDataLoadersOptions {
  // The rows of the validation; none: the share valid_pct of all, which `seed` chooses.
  std::vector<std::int64_t> valid_idx = {};
  double valid_pct = 0.2;
  std::uint64_t seed = 0;
  DataLoadersOptions loaders = {};
};

class TabularDataLoaders : public DataLoaders {
 public:
  using Options = TabularDataLoadersOptions;

  // Errors, on all ranks: as of read_table(), statistics_of() and encoded(); a table without rows;
  // rows of the validation that there are not, that come twice, or that are all.
  static TabularDataLoaders from_csv(const Job& job, const std::filesystem::path& path,
                                     const data::TableColumns& columns,
                                     const Options& options = {});
  static TabularDataLoaders from_table(const Job& job, const data::Table& table,
                                       const data::TableColumns& columns,
                                       const Options& options = {});

  // What the training rows have said.
  const data::TableStatistics& statistics() const { return statistics_; }
  using DataLoaders::test_dl;
  // Of other rows, with the target's column or without it. Errors: as of encoded().
  std::unique_ptr<data::DataLoader> test_dl(const data::Table& rows) const {
    return test_dl(data::encoded(rows, statistics_));
  }

 private:
  struct Sets {
    data::DatasetRef training, validation;
    data::TableStatistics statistics;
    std::string outline;  // what ranks compare
  };
  TabularDataLoaders(const Job& job, Sets sets, const DataLoadersOptions& options)
      : DataLoaders(job, std::move(sets.training), std::move(sets.validation), options),
        statistics_(std::move(sets.statistics)) {}
  static Sets split(const data::Table& table, const data::TableColumns& columns,
                    const Options& options);

  data::TableStatistics statistics_;
};

// By the loaders' statistics.
inline Learner tabular_learner(Job& job, TabularDataLoaders& dls, LearnerOptions options = {},
                               nn::TabularSettings settings = {}) {
  return tabular_learner(job, Loaders(dls), dls.statistics(), std::move(options),
                         std::move(settings));
}

}  // namespace peal::launch
