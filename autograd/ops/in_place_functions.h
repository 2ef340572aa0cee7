// SPDX-License-Identifier: Apache-2.0
// Functions in place: exp_(x), clamp_(x, 0, 1), addcmul_(x, a, b) and all others of
// core/in_place.def, by the function of the name without the underscore. x becomes f(x, ...), cast
// to its type, and is the result; recorded, and written where x lies, by the rule of in_place.h: an
// Error for a leaf that requires a gradient outside of NoGrad, and for a result of another shape or
// category (exp_ of integers). As the new values are made beside the old ones, no memory is saved.
// Thread safety: as of the operands.
#pragma once

#include <peal/autograd/core/tensor.h>

namespace peal {

// Of a temporary the result is all that has the values.
#define IN_PLACE_LIST(...) __VA_OPT__(, ) __VA_ARGS__
#define IN_PLACE(name, parameters, arguments)                      \
  const Tensor& name##_(const Tensor& x IN_PLACE_LIST parameters); \
  [[nodiscard]] Tensor name##_(Tensor&& x IN_PLACE_LIST parameters);
#include <peal/autograd/core/in_place.def>
#undef IN_PLACE
#undef IN_PLACE_LIST

// The operators by their names, beside add_ and mul_ by a number (arithmetic.h), which no graph
// records.
inline const Tensor& sub_(const Tensor& x, const Tensor& y) { return x -= y; }
inline const Tensor& sub_(const Tensor& x, Scalar y) { return x -= y; }
inline const Tensor& mul_(const Tensor& x, const Tensor& y) { return x *= y; }
inline const Tensor& div_(const Tensor& x, const Tensor& y) { return x /= y; }
inline const Tensor& div_(const Tensor& x, Scalar y) { return x /= y; }

}  // namespace peal
