// SPDX-License-Identifier: Apache-2.0
// ReduceOp: how a collective combines the ranks' elements. Names are NCCL's and MPI's.
//
// avg is the sum divided by the world (truncated towards zero for integers); premul_sum multiplies
// each rank's elements by a factor first. min and max give NaN when any element is NaN, and order
// -0 below +0, so that all ranks agree. Integers wrap around,
// also before avg divides; a sum of several NaN is NaN on all ranks, of whatever payload. On bool,
// sum and max are "or", prod and min are "and". band, bor and bxor are for integers and bool.
#pragma once

#include <peal/autograd/core/dtype.h>

#include <cstdint>
#include <string_view>

namespace peal::comm {

enum class ReduceOp : std::uint8_t { sum, avg, prod, min, max, band, bor, bxor, premul_sum };

// As it is written in errors and on command lines.
constexpr std::string_view name(ReduceOp op) {
  constexpr std::string_view names[] = {"sum",  "avg", "prod", "min",       "max",
                                        "band", "bor", "bxor", "premul_sum"};
  return names[static_cast<int>(op)];
}

// Whether all_reduce knows the pair, and the Error where it does not.
bool has_reduction(DType dtype, ReduceOp op);
void check_reduction(DType dtype, ReduceOp op);

}  // namespace peal::comm
