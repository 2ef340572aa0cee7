// SPDX-License-Identifier: Apache-2.0
// What a dropout draws, for ops that drop inside: element i is kept, times `factor`, where word i
// is `threshold` or more. Thread safety: draws from the caller's context.
#pragma once

#include <peal/autograd/core/rng.h>
#include <peal/autograd/core/tensor.h>

#include <cstdint>

namespace peal {

struct DropoutDraw {
  RandomRange words;
  std::uint32_t threshold;
  double factor;
};

// For n elements. REQUIRES: 0 <= p < 1.
DropoutDraw draw_dropout(std::int64_t n, double p);
// dropout() of x by what was drawn.
Tensor dropped(const Tensor& x, const DropoutDraw& draw);

// Of a part of a whole that lies in `parts` equal ones along `dim`: what dropout() of the whole has
// there. Draws for the whole. Errors: as of dropout(); a dimension that x has not.
Tensor dropout_of_part(const Tensor& x, double p, int dim, std::int64_t part, std::int64_t parts);

}  // namespace peal
