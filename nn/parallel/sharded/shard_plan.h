// SPDX-License-Identifier: Apache-2.0
// The shard plan of FullyShardedDataParallel (ZeRO stage 3; Rajbhandari et al., "ZeRO: memory
// optimizations toward training trillion parameter models", SC 2020, section 5.3): which rank keeps
// which elements of a model, as a value. A pure function of names and shapes, so every rank makes
// the same one, and start-up can compare.
//
// A unit is a module whose parameters are gathered and freed together. They lie one behind the
// other, without gaps, in a flat parameter (one for each type, and frozen ones by themselves, which
// have no gradients to send); it is cut into as many chunks of one size as there are ranks, rank r
// keeps chunk r, and the last ones end in zeros, or are nothing else:
//
//   5 elements on 4 ranks: 2, 2, 1, 0      50257 on 4: 12565, 12565, 12565, 12562
//
// So one all-gather makes a unit where it is used, with no copy
// (docs/decisions/0043-flat-chunks.md). A tied parameter is of the innermost unit that encloses all
// of its uses. Thread safety: pure functions and values.
#pragma once

#include <peal/nn/parallel/sharded/wrap_policy.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace peal::nn {

struct FlatPlan {
  struct Entry {
    int parameter;    // its number in the outline
    std::int64_t at;  // first element in the flat parameter
    bool operator==(const Entry&) const = default;
  };
  DType dtype = DType::f32;
  bool trained = true;
  std::vector<Entry> entries;  // by number
  std::int64_t count = 0;      // elements
  std::int64_t chunk = 0;      // of a rank: ceil(count / world)
  bool operator==(const FlatPlan&) const = default;
};

struct UnitPlan {
  std::string path;  // of the module; the model itself is ""
  std::vector<FlatPlan> flats;
  bool trained() const;  // any of it
  bool frozen() const;   // any of it
  bool operator==(const UnitPlan&) const = default;
};

// What a rank keeps of a parameter: `count` of its elements from `first` on, at `at` in the chunk.
struct Piece {
  std::int64_t first = 0, count = 0, at = 0;
  bool operator==(const Piece&) const = default;
};
// Of a parameter of so many elements; empty where the rank keeps none of it.
Piece piece_of(const FlatPlan& flat, const FlatPlan::Entry& entry, std::int64_t elements, int rank);

// The first unit is the model itself; the others come in the order of its modules. One that has
// nothing by itself is left out, but for the model. Errors: of the policy; a path that comes twice,
// that the model has not, is its own, or a list's that nobody calls (ModuleList, ModuleDict).
std::vector<UnitPlan> plan_units(const ModelOutline& outline, const WrapPolicy& policy, int world);

// "the model" or "unit h.0".
std::string name_of(const UnitPlan& unit);
// A table for people, and what ranks compare: units, what they have, and each rank's elements.
std::string describe(const ModelOutline& outline, std::span<const UnitPlan> units, int world);

}  // namespace peal::nn
