// SPDX-License-Identifier: Apache-2.0
// Damage: a schedule with one fault in it that the verifier finds.
//
// Thread safety: pure functions.
#pragma once

#include <peal/comm/schedule/schedule.h>
#include <peal/comm/verify/verify.h>
#include <peal/launch/tools/schedule/world.h>

#include <cstdint>
#include <string>
#include <vector>

namespace peal::launch {

struct Damaged {
  std::vector<comm::Program> programs;
  std::string damage;  // what was done, in words
  comm::Verdict verdict;
};

// Damages: drop, shift, peer, count, twice, merge, swap; empty: any. `seed`: which one of them.
// Error where there is no such damage, or none does any harm.
Damaged damaged(const World& world, const std::vector<comm::Program>& valid, const std::string& how,
                std::uint64_t seed);

}  // namespace peal::launch
