// SPDX-License-Identifier: Apache-2.0
// UCI's Adult, for the examples that learn it: who of these people earns more than 50,000 dollars a
// year? Thread safety: free functions without state.
#pragma once

#include <peal/data/tables/statistics.h>

#include <filesystem>
#include <string>
#include <string_view>

namespace adult {

// Of adult.data and adult.test, which have no row of names; a "?" is a missing word.
inline peal::data::Table read_people(const std::filesystem::path& file) {
  peal::data::Table people = peal::data::read_table(
      file,
      {.names = {"age", "workclass", "fnlwgt", "education", "education-num", "marital-status",
                 "occupation", "relationship", "race", "sex", "capital-gain", "capital-loss",
                 "hours-per-week", "native-country", "income"},
       .skip_initial_space = true,
       .comment = '|'},
      {"?"});
  // Those of adult.test end in a full stop.
  people.map("income", [](std::string_view word) {
    return std::string(word.substr(0, word.find_last_not_of(". ") + 1));
  });
  return people;
}

inline const peal::data::TableColumns columns{
    .categories = {"workclass", "education", "marital-status", "occupation", "relationship", "race",
                   "sex", "native-country"},
    .numbers = {"age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"},
    .target = "income"};

}  // namespace adult
