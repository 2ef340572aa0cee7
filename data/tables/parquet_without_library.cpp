// SPDX-License-Identifier: Apache-2.0
// A build without Apache Arrow.
#include <peal/autograd/core/error.h>
#include <peal/data/tables/parquet.h>

namespace peal::data {

Table read_parquet(const std::filesystem::path& path, const ParquetOptions&,
                   const std::vector<std::string>&) {
  fail(concat("[data] read_parquet: ", path.string(),
              ": this build has no Apache Arrow; install it (libarrow-dev and libparquet-dev of "
              "https://arrow.apache.org/install, or pip install pyarrow), name its folder in "
              "CMAKE_PREFIX_PATH, and configure and build again; or write the file as CSV"));
}

}  // namespace peal::data
