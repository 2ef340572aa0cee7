// SPDX-License-Identifier: Apache-2.0
// A build without Arrow says what to install; linked with what takes the reader's place.
#include <doctest/doctest.h>
#include <peal/data/tables/parquet.h>
#include <peal/tests/errors.h>

TEST_CASE("without the library, a Parquet file says what to install") {
  peal::testing::check_has(
      peal::testing::error_of([] { peal::data::read_parquet("people.parquet"); }),
      "[data] read_parquet: people.parquet: this build has no Apache Arrow; install it "
      "(libarrow-dev and libparquet-dev");
}
