// SPDX-License-Identifier: Apache-2.0
// Tensor contraction: sums of products over dimensions that have labels, for ops. Thread safety:
// pure functions.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <string_view>
#include <vector>

namespace peal {

// One a dimension: any numbers.
using Labels = std::vector<int>;

struct Labelled {
  Tensor x;
  Labels labels;
};

// Each label once: the diagonal of those dimensions that have it. Error where their sizes differ.
Labelled diagonals_of(std::string_view op, const Labelled& operand);
// The product, summed over the labels that are not kept; the labels of the result are those that
// both have, as a has them, those of a alone and those of b alone. REQUIRES: a label stands once in
// an operand; where both have it their sizes are equal, or one is 1.
Labelled contracted(Labelled a, Labelled b, const Labels& kept);
Labelled summed_but(const Labelled& operand, const Labels& kept);
// The dimensions in this order of labels. REQUIRES: the operand has these and no others.
Tensor ordered(const Labelled& operand, const Labels& order);

}  // namespace peal
