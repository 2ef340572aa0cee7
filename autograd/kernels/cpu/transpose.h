// SPDX-License-Identifier: Apache-2.0
// The transpose of a matrix of two-byte elements, in blocks that vectors hold: what brings images
// [C, H W] to [H W, C] and back. oneDNN's own reorders take such elements one at a time. Thread
// safety: pure functions.
#pragma once

#include <cstdint>

namespace peal::cpu {

// to[j][i] = from[i][j] for i < rows, j < columns. From one row to the next are row_to and row_from
// elements.
void transpose(std::uint16_t* to, std::int64_t row_to, const std::uint16_t* from,
               std::int64_t row_from, std::int64_t rows, std::int64_t columns);

}  // namespace peal::cpu
