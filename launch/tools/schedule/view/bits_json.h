// SPDX-License-Identifier: Apache-2.0
// What the page shows of floating-point sums, as JSON: the same numbers of the same ranks, summed
// by every all_reduce of peal between threads of this process, bit by bit, with the order in which
// each adds; and the losses of a small model that is trained by each, until they differ.
//
// Sums are those of the group (run_ranks), the order that of the plan (rows.h), and both are
// compared: Error where the plan's order does not give the group's bits. Thread safety: a function
// that starts threads of its own.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace peal::launch {

struct BitsViewOptions {
  int ranks = 4;
  std::int64_t elements = 8;
  std::string type = "f32";  // or f16, bf16
  std::uint64_t seed = 1;
  std::int64_t steps = 100;  // of training; 0: none
};

// Of each element "inputs" by rank and "exact", [text, bits]; by algorithm "sums", [text, bits, how
// many numbers of the type it is from the exact sum's nearest, how it was added], and "losses" with
// the first step at which they are not those of the first one. Error for another type, and more
// ranks, elements or steps than a page shows.
nlohmann::json bits_json(const BitsViewOptions& options);

}  // namespace peal::launch
