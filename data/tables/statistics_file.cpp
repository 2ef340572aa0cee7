// SPDX-License-Identifier: Apache-2.0
// The statistics of a table as JSON.
#include <peal/autograd/core/atomic_file.h>
#include <peal/autograd/core/error.h>
#include <peal/data/formats/gzip.h>
#include <peal/data/tables/statistics.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

namespace peal::data {
namespace {

using nlohmann::json;

constexpr const char* format_of_statistics = "peal table statistics 1";

json json_of(const Categories& column) {
  return {{"column", column.column}, {"words", column.words}};
}

Categories categories_in(const json& text) {
  Categories column{text.at("column"), text.at("words")};
  if (!std::is_sorted(column.words.begin(), column.words.end())) {
    fail(concat("the words of column '", column.column, "' are not sorted"));
  }
  return column;
}

Scaling scaling_in(const json& text) {
  Scaling column{text.at("column"), text.at("median"), text.at("mean"), text.at("deviation"),
                 text.at("has_missing")};
  if (!(std::isfinite(column.median) && std::isfinite(column.mean) && column.deviation > 0 &&
        std::isfinite(column.deviation))) {
    fail(concat("the scaling of column '", column.column, "' is no scaling"));
  }
  return column;
}

}  // namespace

std::string text_of(const TableStatistics& statistics) {
  json out{{"format", format_of_statistics},
           {"categories", json::array()},
           {"numbers", json::array()},
           {"target", json_of(statistics.target)},
           {"target_is_number", statistics.target_is_number}};
  for (const Categories& column : statistics.categories) {
    out["categories"].push_back(json_of(column));
  }
  for (const Scaling& column : statistics.numbers) {
    out["numbers"].push_back({{"column", column.column},
                              {"median", column.median},
                              {"mean", column.mean},
                              {"deviation", column.deviation},
                              {"has_missing", column.has_missing}});
  }
  try {
    return out.dump(1) + "\n";
  } catch (const json::exception& error) {
    fail(concat("[data] a word of the table is no UTF-8 (", error.what(),
                "); convert the table (iconv)"));
  }
}

void save_statistics(const std::filesystem::path& path, const TableStatistics& statistics) {
  std::string text;
  try {
    text = text_of(statistics);
  } catch (const Error& error) {
    fail(concat(error.what(), "; ", path.string(), " was not written"));
  }
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

TableStatistics parse_statistics(std::string_view text, std::string_view name) {
  try {
    const json in = json::parse(text);
    if (in.at("format") != format_of_statistics) fail("another format");
    TableStatistics found;
    for (const json& column : in.at("categories")) {
      found.categories.push_back(categories_in(column));
    }
    for (const json& column : in.at("numbers")) found.numbers.push_back(scaling_in(column));
    found.target = categories_in(in.at("target"));
    found.target_is_number = in.at("target_is_number");
    return found;
  } catch (const std::exception& error) {
    fail(
        concat("[data] ", name, ": not the statistics of a table that peal saved: ", error.what()));
  }
}

TableStatistics load_statistics(const std::filesystem::path& path) {
  const std::vector<std::uint8_t> content = read_file(path);
  return parse_statistics({reinterpret_cast<const char*>(content.data()), content.size()},
                          path.string());
}

}  // namespace peal::data
