// SPDX-License-Identifier: Apache-2.0
// Joining rows, columns and planes, and taking apart in a number of pieces, by concatenate.h.
#pragma once

#include <peal/autograd/ops/concatenate.h>

namespace peal {

// Side by side: along the second dimension, or of tensors [n] along their only one.
Tensor hstack(const Tensors& tensors);
// One below the other: along the first of at least two dimensions, so [n] is a row.
Tensor vstack(const Tensors& tensors);
// One behind the other: along the third of at least three.
Tensor dstack(const Tensors& tensors);
// As hstack, where [n] is a column.
Tensor column_stack(const Tensors& tensors);

// At most `chunks` parts of one size along dim, the last of what remains.
Parts chunk(const Tensor& x, std::int64_t chunks, int dim = 0);
// Exactly so many, of sizes that differ by at most 1, the first ones larger; or cut at these
// places.
Parts tensor_split(const Tensor& x, std::int64_t sections, int dim = 0);
Parts tensor_split(const Tensor& x, const std::vector<std::int64_t>& places, int dim = 0);
// Each index along dim by itself, without the dimension.
Parts unbind(const Tensor& x, int dim = 0);

}  // namespace peal
