// SPDX-License-Identifier: Apache-2.0
// "Did you mean": the word that is the least edits away from what was typed (Damerau and
// Levenshtein: letters put in, left out, changed, or swapped with the next). Thread safety: pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace peal {

int edits(std::string_view typed, std::string_view word);

// "; did you mean 'launch'?", or nothing where none is near: more than half of it would change.
std::string did_you_mean(std::string_view typed, const std::vector<std::string>& words);

}  // namespace peal
