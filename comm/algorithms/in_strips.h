// SPDX-License-Identifier: Apache-2.0
#pragma once

// In strips: the one-sided programs of slots.h, direct_slices.h and staged_slices.h as the workers
// of a device run them (flat_program.h). All parts count as long as the longest, so that programs
// stay short whatever the counts are; and the chunks of staged slices are equally long.
//
// Thread safety: pure functions. REQUIRES: a problem of one node, of at most
// FlatProgram::most_ranks ranks.

#include <peal/comm/schedule/flat_program.h>
#include <peal/comm/schedule/schedule.h>

#include <cstdint>

namespace peal::comm {

// Of each rank.
struct Workers {
  int count = 1;
  std::int64_t room = 0;   // elements, of a worker: a multiple of `align`, two of them a rank
  std::int64_t align = 1;  // strips and slices are cut at multiples of it
};

// The rooms hold a strip of what each rank gives. One meeting, and a barrier can be had so only.
bool fits_slots(const Problem& problem, const Workers& workers);
FlatProgram slots_in_strips(const Problem& problem, const Workers& workers);
// Direct where all buffers are within reach, else staged. REQUIRES: several ranks, and no barrier.
FlatProgram slices_in_strips(const Problem& problem, const Workers& workers);

}  // namespace peal::comm
