// SPDX-License-Identifier: Apache-2.0
// What the ranks of a job have to say, without what others have said alike: of eight ranks that are
// bound alike one line, with "(x8: ranks 0-7)" behind it. Thread safety: pure.
#pragma once

#include <string>
#include <vector>

namespace peal::launch {

// Texts by rank, empty for nothing. Two are alike that differ in the rank's own "rank 3 " alone.
// Each once, in the words of the first rank, in the order of ranks.
std::vector<std::string> told_once(const std::vector<std::string>& by_rank);

}  // namespace peal::launch
