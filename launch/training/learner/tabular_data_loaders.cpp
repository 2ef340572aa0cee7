// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/group/agree.h>
#include <peal/data/subset.h>
#include <peal/launch/training/learner/tabular_data_loaders.h>

#include <optional>
#include <set>
#include <string>

namespace peal::launch {
namespace {

// What ranks compare.
std::string outline_of_rows(const data::DatasetRef& training, const data::DatasetRef& validation,
                            const data::TableStatistics& statistics) {
  return concat(training->size(), " rows to learn from and ", validation ? validation->size() : 0,
                " to judge by\n", data::text_of(statistics));
}

}  // namespace

TabularDataLoaders::Sets TabularDataLoaders::split(const data::Table& table,
                                                   const data::TableColumns& columns,
                                                   const Options& options) {
  std::vector<std::int64_t> judged = options.valid_idx;
  if (judged.empty()) {
    PEAL_CHECK(options.valid_pct >= 0 && options.valid_pct < 1,
               "valid_pct: expected a share from 0 to below 1, got ", options.valid_pct);
    judged = data::random_parts(table.rows(), {1 - options.valid_pct, options.valid_pct},
                                options.seed)[1];
  }
  const std::set<std::int64_t> left_out(judged.begin(), judged.end());
  std::vector<std::int64_t> learnt;
  for (std::int64_t row = 0; row < table.rows(); ++row) {
    if (!left_out.contains(row)) learnt.push_back(row);
  }
  PEAL_CHECK(!learnt.empty(), table.name(), ": of ", table.rows(),
             " rows all are of the validation; none is left to learn from");
  data::TableStatistics statistics = data::statistics_of(table, columns, learnt);
  const data::DatasetRef rows = data::encoded(table, statistics);
  const auto validation =
      judged.empty() ? nullptr : std::make_shared<data::Subset>(rows, std::move(judged));
  return {std::make_shared<data::Subset>(rows, std::move(learnt)), validation,
          std::move(statistics)};
}

TabularDataLoaders TabularDataLoaders::from_csv(const Job& job, const std::filesystem::path& path,
                                                const data::TableColumns& columns,
                                                const Options& options) {
  std::optional<data::Table> table;
  std::string wrong;
  try {
    table.emplace(data::read_table(path));
  } catch (const std::exception& error) {
    wrong = error.what();
  }
  comm::agree_unless(job.group(), "[launch] TabularDataLoaders: the table",
                     table ? concat(table->rows(), " rows") : "", wrong,
                     "every rank is to read the same file");
  return from_table(job, *table, columns, options);
}

TabularDataLoaders TabularDataLoaders::from_table(const Job& job, const data::Table& table,
                                                  const data::TableColumns& columns,
                                                  const Options& options) {
  Sets sets;
  std::string wrong, outline;
  try {
    sets = split(table, columns, options);
    outline = outline_of_rows(sets.training, sets.validation, sets.statistics);
  } catch (const std::exception& error) {
    wrong = error.what();
  }
  comm::agree_unless(job.group(), "[launch] TabularDataLoaders: the rows", outline, wrong,
                     "every rank is to have the same table and options");
  return {job, std::move(sets), options.loaders};
}

}  // namespace peal::launch
