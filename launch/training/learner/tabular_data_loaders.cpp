// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/group/agree.h>
#include <peal/comm/group/failure_while.h>
#include <peal/data/subset.h>
#include <peal/launch/training/learner/tabular_data_loaders.h>
#include <peal/nn/parallel/make_equal.h>

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace peal::launch {
namespace {

// What ranks compare.
std::string outline_of_rows(const data::Batch& rows, const std::vector<std::int64_t>& judged,
                            const data::TableStatistics& statistics) {
  std::string all = concat(rows.size() - std::ssize(judged), " rows to learn from and ",
                           judged.size(), " to judge by\n", data::text_of(statistics), '\n');
  const auto add = [&](std::string_view name, const Tensor& tensor) {
    if (!tensor.defined()) return;
    const auto [first, second] = nn::digest_of(tensor);
    all += concat(name, " of digest ", first, ' ', second, '\n');
  };
  add("rows to judge by", Tensor::from(judged, {std::ssize(judged)}, Device{}));
  add("categories", rows.x);
  add("targets", rows.y);
  for (const auto& [name, tensor] : rows.more) add(name, tensor);
  return all;
}

}  // namespace

TabularDataLoaders::Sets TabularDataLoaders::split(const data::Table& table,
                                                   const data::TableColumns& columns,
                                                   const Options& options) {
  PEAL_CHECK(table.rows() > 0, table.name(), " has no row to learn from");
  std::vector<std::int64_t> judged = options.valid_idx;
  if (judged.empty()) {
    PEAL_CHECK(options.valid_pct >= 0 && options.valid_pct < 1,
               "valid_pct: expected a share from 0 to below 1, got ", options.valid_pct);
    judged = data::random_parts(table.rows(), {1 - options.valid_pct, options.valid_pct},
                                options.seed)[1];
  }
  const std::set<std::int64_t> left_out(judged.begin(), judged.end());
  PEAL_CHECK(left_out.size() == judged.size(), "valid_idx: expected every row once, got ",
             judged.size(), " of which ", left_out.size(), " are different");
  std::vector<std::int64_t> learnt;
  for (std::int64_t row = 0; row < table.rows(); ++row) {
    if (!left_out.contains(row)) learnt.push_back(row);
  }
  PEAL_CHECK(!learnt.empty(), table.name(), ": of ", table.rows(),
             " rows all are of the validation; none is left to learn from");
  data::TableStatistics statistics = data::statistics_of(table, columns, learnt);
  const auto rows = data::encoded(table, statistics);
  std::string outline = outline_of_rows(rows->rows(), judged, statistics);
  const auto validation =
      judged.empty() ? nullptr : std::make_shared<data::Subset>(rows, std::move(judged));
  return {std::make_shared<data::Subset>(rows, std::move(learnt)), validation,
          std::move(statistics), std::move(outline)};
}

TabularDataLoaders TabularDataLoaders::from_csv(const Job& job, const std::filesystem::path& path,
                                                const data::TableColumns& columns,
                                                const Options& options) {
  std::optional<data::Table> table;
  const std::string wrong = comm::failure_while(job.group(), "reads a table",
                                                [&] { table.emplace(data::read_table(path)); });
  comm::agree_unless(job.group(), "[launch] TabularDataLoaders: the table",
                     table ? concat(table->rows(), " rows") : "", wrong,
                     "every rank is to read the same file");
  return from_table(job, *table, columns, options);
}

TabularDataLoaders TabularDataLoaders::from_table(const Job& job, const data::Table& table,
                                                  const data::TableColumns& columns,
                                                  const Options& options) {
  Sets sets;
  const std::string wrong = comm::failure_while(job.group(), "reads a table",
                                                [&] { sets = split(table, columns, options); });
  comm::agree_unless(job.group(), "[launch] TabularDataLoaders: the rows", sets.outline, wrong,
                     "every rank is to have the same table and options");
  return {job, std::move(sets), options.loaders};
}

}  // namespace peal::launch
