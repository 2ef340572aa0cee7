// SPDX-License-Identifier: Apache-2.0
// Circle: the ranks of a schedule that is stuck that wait for each other, each for the next and the
// last for the first; empty where there is none, and all wait in the end for one that has finished.
//
// Thread safety: a pure function.
#pragma once

#include <peal/comm/draw/rows.h>

#include <vector>

namespace peal::launch {

// The one with the smallest rank in it, beginning there.
std::vector<int> circle_of(const std::vector<comm::RowWaiting>& waiting);

}  // namespace peal::launch
