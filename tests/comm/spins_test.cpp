// SPDX-License-Identifier: Apache-2.0
// How long a rank spins, when it looks up, and that no wait is too long to be counted.
#include <peal/comm/engine/spins.h>

#include <cstdint>
#include <initializer_list>

#include <doctest/doctest.h>

using peal::comm::Spins;

TEST_CASE("a wait spins first and then gives way, and looks up now and then from the start") {
  Spins spins(false);
  int looks = 0;
  for (std::uint64_t asked = 1; asked <= 3 * Spins::before_yield; ++asked) {
    spins.ask();
    CHECK(spins.gives_way() == (asked > Spins::before_yield));
    looks += spins.looks() ? 1 : 0;
    if (asked < Spins::between_looks) CHECK(looks == 0);  // a short wait pays for none
  }
  CHECK(looks == static_cast<int>(3 * Spins::before_yield / Spins::between_looks));
}

TEST_CASE("on a crowded node it gives way and looks up each time") {
  Spins spins(true);
  spins.ask();
  CHECK(spins.gives_way());
  CHECK(spins.looks());
}

TEST_CASE("a wait of hours goes on giving way and looking up") {
  for (const std::uint64_t asked : {(std::uint64_t{1} << 31) - 1, (std::uint64_t{1} << 32) - 1}) {
    Spins spins(false, asked);
    int looks = 0;
    for (int i = 0; i < 1000; ++i) {
      spins.ask();
      CHECK(spins.gives_way());
      looks += spins.looks() ? 1 : 0;
    }
    CHECK(looks == 16);  // of 1000 questions, the first of them a multiple of 64
  }
}
