// SPDX-License-Identifier: Apache-2.0
// MPI tags as bit fields, for every limit that an MPI may have.
#include <peal/comm/transport/mpi/tags.h>

#include <cstdint>
#include <set>

#include <doctest/doctest.h>

using namespace peal;
using comm::Tags;

namespace {

// Of Open MPI over TCP, Open MPI over UCX, Intel MPI, and the least that will do; and odd ones.
constexpr std::int64_t limits[] = {0x7fffffff, 0x7fffff, 0x7ffff, 65535, 1'000'000, 65536};

}  // namespace

TEST_CASE("tags keep to the limit, and take all the bits there are") {
  for (const std::int64_t limit : limits) {
    CAPTURE(limit);
    const Tags tags(limit);
    CHECK(((std::int64_t{1} << tags.bits()) - 1) <= limit);
    CHECK(((std::int64_t{1} << (tags.bits() + 1)) - 1) > limit);
    const std::uint64_t all = ~std::uint64_t{0} >> 32;  // folded, a signature of 64 ones is 0
    CHECK(tags.collective(~std::uint64_t{0}, all) == (std::int64_t{1} << tags.bits()) - 1);
    CHECK(tags.message(65535, all) == (std::int64_t{1} << tags.bits()) - 1);
    CHECK(tags.collective(0, 0) == 0);
    CHECK(tags.message(0, 0) == 0);
  }
}

TEST_CASE("operations of different numbers, and messages of different tags, have different tags") {
  for (const std::int64_t limit : limits) {
    CAPTURE(limit);
    const Tags tags(limit);
    // Whatever the signatures.
    const std::uint64_t in_flight = std::uint64_t{1} << tags.sequence_bits();
    CHECK(in_flight >= 512);
    std::set<int> seen;
    for (std::uint64_t k = 0; k < in_flight; ++k) {
      seen.insert(tags.collective(1'000'000 + k, k * 0x9E3779B97F4A7C15ull));
    }
    CHECK(seen.size() == in_flight);
    seen.clear();
    for (int tag = 0; tag < 65536; ++tag) {
      seen.insert(tags.message(tag, static_cast<std::uint64_t>(tag) * 0xC2B2AE3D27D4EB4Full));
    }
    CHECK(seen.size() == 65536);
  }
}

TEST_CASE("operations of one number and different signatures seldom have one tag") {
  const Tags tags(0x7fffff);
  const int above = tags.bits() - tags.sequence_bits();
  int same = 0;
  constexpr int tried = 100'000;
  std::uint64_t signature = 1;
  for (int i = 0; i < tried; ++i) {
    const std::uint64_t other = (signature ^ 12345) * 0x9E3779B97F4A7C15ull;
    same += tags.collective(7, signature) == tags.collective(7, other) ? 1 : 0;
    signature = other ^ other >> 29;
  }
  CHECK(same > 0);
  CHECK(same < 2 * tried / (1 << above));
}

TEST_CASE("an MPI with too few tags is an error that says what to do") {
  CHECK_THROWS_WITH(Tags(32767),
                    doctest::Contains("tags up to 32767 (MPI_TAG_UB), expected 65535"));
  CHECK_THROWS_WITH(Tags(65534), doctest::Contains("--mca pml ob1"));
}
