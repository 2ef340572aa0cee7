// SPDX-License-Identifier: Apache-2.0
// An abort, as MPI has it, that explains itself: what one rank alone finds wrong with a wrapped
// model is an Error on all, so that none waits for it. Thread safety: as of the group.
#pragma once

#include <peal/comm/group/process_group.h>

#include <string_view>

namespace peal::nn {

// Poisons the group with "[who] rank R: what", and throws that. R is this rank's number in the
// world, whichever group it is.
[[noreturn]] void fail_everywhere(const comm::ProcessGroup& group, std::string_view what,
                                  std::string_view who = "ddp");

// In a catch block, of an exception that this rank alone has met: poisons the group with "[who]
// rank R: what: its words", and throws that. Where the group has failed before, what failed first
// has everybody's words. OutOfMemory where the exception and the words are of that. One rank alone
// has the exception itself.
[[noreturn]] void rethrow_everywhere(const comm::ProcessGroup& group, std::string_view what,
                                     std::string_view who = "ddp");

}  // namespace peal::nn
