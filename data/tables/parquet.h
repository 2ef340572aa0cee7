// SPDX-License-Identifier: Apache-2.0
// Apache Parquet: columns of words and numbers in a file, read as a Table, so that statistics,
// encoded() and all else is as of a CSV file. It is read by Apache Arrow, where the build has found
// it; a build without says what to install. What a row is called in errors is the line that it
// would have in a CSV file: row + 2, where no word before has a line end in it. Thread safety: free
// of state.
#pragma once

#include <peal/data/tables/table.h>

#include <filesystem>
#include <string>
#include <vector>

namespace peal::data {

struct ParquetOptions {
  std::vector<std::string> columns = {};  // in the file's order; none: all
};

// Numbers become words that give the same numbers again, true and false True and False, null a
// missing cell, dates and times what Arrow writes for them. Errors: a build without Arrow; not
// there, or no such file; a column that the file has not, or one of lists or structures.
Table read_parquet(const std::filesystem::path& path, const ParquetOptions& options = {},
                   const std::vector<std::string>& missing = words_for_missing());

}  // namespace peal::data
