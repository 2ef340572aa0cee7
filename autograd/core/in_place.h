// SPDX-License-Identifier: Apache-2.0
// The rule for writing in place by functions (copy_, add_, fill_ ...), which no graph records; what
// is recorded is x += y and x[...] = y (ops/in_place.h). What was kept for backward is noticed by
// its version (tape.h). What remains is the result of a recorded operation: writing it would change
// the value and not the gradient, so it is an error unless it happens under NoGrad; so is writing
// into another tensor what wants a gradient, and so is giving such a result to a collective
// (Tensor's conversion to View). Leaves may be written. A temporary may be written where it shares
// its elements (x.rows(0, 1), y.detach()); where nobody else holds them the write would be lost, so
// the overloads for temporaries refuse it, but for methods that return what they have written:
// empty({3}).uniform_() is meant.
//
// What t(), select() and their like copy shares elements in PyTorch, where who writes it writes the
// tensor that it is of. So writing it is an error while that one lives (Storage::is_copy), with a
// name or without, and through whatever shares its elements; then nobody would miss the write.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <string_view>

namespace peal {

void check_in_place(std::string_view op, const Tensor& x);
// Error for a copy of a tensor that lives: a part of check_in_place().
void check_no_copy(std::string_view op, const Tensor& x);
// For what is read: values that are written into another tensor.
void check_source(std::string_view op, const Tensor& source);
// For a temporary that is to be written.
void check_temporary(std::string_view op, const Tensor& x);

}  // namespace peal
