// SPDX-License-Identifier: Apache-2.0
// Agreement: all ranks say the same, or all throw, and name what differs. For what a program must
// give alike on all ranks (options, lists of ranks, models), before anything depends on it.
//
// It costs one small all_gather where all is well: digests are compared, and the texts themselves
// travel only where those differ. A text may be long, and of many lines, of which the error shows
// the first that differ:
//
//   agree(group, "[ddp] the model", lines_of(parameters), "build the same model on every rank");
//
//   [ddp] the model is 'fc1.weight [3, 4]' on rank 0 and 'fc1.weight [3, 5]' on rank 2: build the
//   same model on every rank
//
// What one rank alone finds wrong, before it has a text to compare, all are told as well:
//
//   [ddp] the model: rank 2: fc1.weight already belongs to a distributed wrapper
//
// Thread safety: as the group's.
#pragma once

#include <peal/comm/group/process_group.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace peal::comm {

// Collective. Error on all ranks, and the group goes on, unless `mine` is equal on all: `what` says
// whose fault it is, `advice` what to do. Returns what rank 0 tells them besides, on which they
// then agree too; `told` of the others is not read, and a text that is empty costs nothing. `word`
// becomes rank 0's too.
std::string agree(const ProcessGroup& group, std::string_view what, const std::string& mine,
                  std::string_view advice, const std::string& told = {},
                  std::uint64_t* word = nullptr);

// The same, where a rank may have found something wrong, and `wrong` says what: Error on all ranks,
// who go on, that names these and what; OutOfMemory where it is words of that (out_of_memory.h).
void agree_unless(const ProcessGroup& group, std::string_view what, const std::string& mine,
                  const std::string& wrong, std::string_view advice);

// 128 bits that differ where bytes, a text's or a tensor's, do. Not for adversaries.
std::array<std::uint64_t, 2> digest(std::string_view bytes);

}  // namespace peal::comm
