// SPDX-License-Identifier: Apache-2.0
// The ring all-reduce, by hand: no library, no threads, no network, only arrays, so that nothing
// hides what happens.
//
// Four ranks stand in a circle. Each has four numbers, and all want the sums over the ranks. In
// every round each rank sends one number to the next rank. For three rounds what arrives is added,
// after which each rank holds one finished sum; for three more what arrives replaces what was
// there.
//
// Run it:   build/release/examples/01_ring_by_hand
//
// The book (docs/book): chapter 2, the ring.
#include <array>
#include <cstdio>

constexpr int ranks = 4;
using Row = std::array<int, ranks>;  // one rank's numbers
using World = std::array<Row, ranks>;

int wrap(int i) { return (i % ranks + ranks) % ranks; }

void show(const char* what, const World& world) {
  std::printf("%-22s", what);
  for (const Row& row : world) {
    std::printf("  ");
    for (int number : row) std::printf("%6d", number);
  }
  std::printf("\n");
}

int main() {
  World world;
  Row wanted{};
  for (int r = 0; r < ranks; ++r) {
    for (int block = 0; block < ranks; ++block) {
      world[r][block] = (r + 1) * (block == 0 ? 1 : block == 1 ? 10 : block == 2 ? 100 : 1000);
      wanted[block] += world[r][block];
    }
  }
  std::printf(
      "%-22s  rank 0                    rank 1                    rank 2                    rank "
      "3\n",
      "");
  show("at the start", world);

  for (int round = 0; round < ranks - 1; ++round) {
    const World before = world;  // all send at once: what a rank sends is what it had
    for (int r = 0; r < ranks; ++r) {
      const int previous = wrap(r - 1), block = wrap(previous - round);
      world[r][block] += before[previous][block];
    }
    show("reduce, after a round", world);
  }
  for (int round = 0; round < ranks - 1; ++round) {
    const World before = world;
    for (int r = 0; r < ranks; ++r) {
      const int previous = wrap(r - 1), block = wrap(previous + 1 - round);
      world[r][block] = before[previous][block];
    }
    show("gather, after a round", world);
  }

  for (const Row& row : world) {
    if (row != wanted) {
      std::printf("wrong\n");
      return 1;
    }
  }
  std::printf("Every rank has every sum, after %d rounds of one number each.\n", 2 * (ranks - 1));
}
