// SPDX-License-Identifier: Apache-2.0
// A Learner for rows of a table (fastai: tabular_learner): nn::TabularModel on the batches of
// data::encoded(), with what the training rows said about words and numbers, which is exported
// with the model.
//
//   const auto statistics = data::statistics_of(table, columns);
//   launch::DataLoaders dls(job, data::encoded(table, statistics),
//                           data::encoded(others, statistics));
//   auto learner = launch::tabular_learner(job, dls, statistics,
//                                          {.tell = launch::print});
//   learner.fit_one_cycle(3, 5e-3);
//   learner.export_to("adult.learner");
//
//   auto loaded = launch::load_tabular_learner(job, "adult.learner");  // in another program
//   const auto rows = data::encoded(table, launch::statistics_in("adult.learner"));
//   loaded.predict(rows->get(std::vector<std::int64_t>{0})).label;
//
// Thread safety: as of Learner.
#pragma once

#include <peal/data/tables/statistics.h>
#include <peal/launch/training/learner/learner.h>
#include <peal/nn/models/tabular.h>

#include <filesystem>

namespace peal::launch {

// Where they are not given: the widths of embeddings by fastai's rule, layers of 200 and 100, the
// cross entropy of a target of words, whose names are the classes, or the squared error of one that
// is a number. Settings of numbers and outputs are the statistics'. Error: no target, and those of
// TabularModel and Learner.
Learner tabular_learner(Job& job, Loaders loaders, const data::TableStatistics& statistics,
                        LearnerOptions options = {}, nn::TabularSettings settings = {});

// Without data, of what such a learner has exported; and what it has to encode rows by. Errors: as
// of load_learner(); a file of another learner.
Learner load_tabular_learner(Job& job, const std::filesystem::path& file,
                             LearnerOptions options = {});
data::TableStatistics statistics_in(const std::filesystem::path& file);

}  // namespace peal::launch
