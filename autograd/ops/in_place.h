// SPDX-License-Identifier: Apache-2.0
// Writing in place that is recorded: x += y, -=, *=, /= and x[...] = y (indexing.h).
//
// Where no gradient is wanted the elements are overwritten, and whatever shares them sees it: what
// reshape(), rows() and detach() gave. Where x or y wants one, the new value is computed anew and
// recorded, and x becomes that: all handles of x (copies of the Tensor) see it, and backward still
// has the old value for what was made from that. What shares only the elements then keeps the old
// ones, unlike PyTorch's views; and a loop that fills a long buffer piece by piece copies it each
// time (cat and stack do not).
//
// A leaf that requires a gradient is not written so outside of NoGrad, as in PyTorch: an Error, and
// so is a result of another category than x's (f32 into i64), or of another shape. Thread safety:
// as of the operands.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <string_view>

namespace peal {

// Whether writing `source` (or, undefined, a number) into x is recorded. Error where it would have
// to be, and x is a leaf, and for a copy of a tensor that lives (core/in_place.h).
bool write_is_recorded(std::string_view op, const Tensor& x, const Tensor& source);
// x becomes r, which was computed from it: of its shape, and cast to its type.
void write_back(std::string_view op, const Tensor& x, const Tensor& r);

}  // namespace peal
