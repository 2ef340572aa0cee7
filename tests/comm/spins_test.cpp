// SPDX-License-Identifier: Apache-2.0
// How long a rank spins, and when it looks up.
#include <peal/comm/engine/spins.h>

#include <chrono>
#include <cstdint>
#include <thread>

#include <doctest/doctest.h>

using peal::comm::Spins;

TEST_CASE("a wait spins first and then gives way for good, however few its questions were") {
  Spins spins(false);
  for (std::uint64_t asked = 1; asked <= Spins::between_clocks; ++asked) {
    CHECK_FALSE(spins.gives_way());  // a short wait reads no clock
    spins.ask();
  }
  CHECK_FALSE(spins.gives_way());
  std::this_thread::sleep_for(2 * Spins::before_yield);
  for (std::uint64_t asked = 1; asked <= Spins::between_clocks; ++asked) spins.ask();
  CHECK(spins.gives_way());
  for (int asked = 0; asked < 1000; ++asked) {
    spins.ask();
    CHECK(spins.gives_way());
  }
}

TEST_CASE("a wait looks up now and then from the start") {
  Spins spins(false);
  int looks = 0;
  for (std::uint64_t asked = 1; asked <= 100 * Spins::between_looks; ++asked) {
    spins.ask();
    looks += spins.looks() ? 1 : 0;
    if (asked < Spins::between_looks) CHECK(looks == 0);
  }
  CHECK(looks == 100);
}

TEST_CASE("on a crowded machine it gives way and looks up each time") {
  Spins spins(true);
  spins.ask();
  CHECK(spins.gives_way());
  CHECK(spins.looks());
}
