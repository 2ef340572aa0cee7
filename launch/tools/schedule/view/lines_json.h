// SPDX-License-Identifier: Apache-2.0
// What the page shows of cache lines, as JSON: an all_reduce in memory that ranks share, by its
// plan, step by step, and in whose caches each line of the buffers then is. The caches are a model,
// of the kind that all such machines have (MESI): who writes a line has it alone, and who reads it
// gets it from the one who has, and from then on both have it. Caches are large enough, and signals
// have lines of their own. Beside it, how long each algorithm takes here, between threads,
// where there is a core for each.
//
// Thread safety: a function that starts threads of its own.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace peal::launch {

struct LinesViewOptions {
  std::string algorithm = "direct_slices";
  int ranks = 4;
  std::int64_t count = 256;  // elements of f32
};

// "touches": [row, memory, line, rank, whether it writes, lines got from another cache, lines that
// others lose, bits of the ranks that have it then]; "algorithms": what each moves, and its time.
// Error for an algorithm that is not one-sided, and more ranks or elements than a page shows.
nlohmann::json lines_json(const LinesViewOptions& options);

}  // namespace peal::launch
