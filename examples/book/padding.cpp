// SPDX-License-Identifier: Apache-2.0
// What becomes of an accuracy when several ranks evaluate. docs/book/09-sharded-data.md
#include <fmt/core.h>
#include <peal/data/sampler.h>
#include <peal/examples/book/book.h>

#include <cstdint>

namespace book {
namespace {

// A classifier that is right on 103 samples but every seventh, and the first two.
bool right(std::int64_t sample) { return sample % 7 != 0 && sample >= 2; }

struct Counted {
  std::int64_t right = 0, seen = 0;
  double accuracy() const { return 100 * static_cast<double>(right) / static_cast<double>(seen); }
};

Counted count(int world, int rank, bool exact) {
  Counted counted;
  for (const std::int64_t sample :
       peal::data::shard(103, world, rank, {.shuffle = false, .exact = exact})) {
    counted.right += right(sample) ? 1 : 0;
    ++counted.seen;
  }
  return counted;
}

}  // namespace

void padded_accuracy() {
  fmt::print("ranks  padded, mean of ranks  exact, mean of ranks  exact, sums\n");
  for (const int world : {1, 2, 4, 8, 32, 64}) {
    double padded = 0, means = 0;
    Counted all;
    for (int rank = 0; rank < world; ++rank) {
      padded += count(world, rank, false).accuracy() / world;
      const Counted mine = count(world, rank, true);
      means += mine.accuracy() / world;
      all.right += mine.right;
      all.seen += mine.seen;
    }
    fmt::print("{:>5} {:>20.3f} % {:>19.3f} % {:>10.3f} %\n", world, padded, means, all.accuracy());
  }
}

}  // namespace book
