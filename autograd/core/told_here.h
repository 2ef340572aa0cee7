// SPDX-License-Identifier: Apache-2.0
// The warnings that this process has told, and where it counts them: in a table of its own, or in
// one that it shares with other ranks (told_warnings.h). Of several the last counts. A child by
// fork() begins anew. Thread safety: any thread.
#pragma once

#include <peal/autograd/core/told_warnings.h>

#include <memory>
#include <string>
#include <string_view>

namespace peal {

// Whether these words are to be printed, as `line`: nobody who counts there has said them before.
// `rank`: who says them now; below 0: none.
bool tell_first(const std::string& line, std::string_view text, int rank);

// From here on this process counts there, as other ranks do, until it parts with it.
void share_told_warnings(const std::shared_ptr<ToldWarnings>& with);
void part_told_warnings(const std::shared_ptr<ToldWarnings>& with);

// How often what this process has told first was said, a line each; of what was said again since
// the last time alone. At the end of a program it comes by itself, but not before std::_Exit().
void tell_repeated_warnings();
// As if nothing had been said yet: for tests.
void forget_told_warnings();

}  // namespace peal
