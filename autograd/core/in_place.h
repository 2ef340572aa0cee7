// SPDX-License-Identifier: Apache-2.0
// The rule for writing in place, which no graph records. What was kept for backward is noticed by
// its version (tape.h). What remains is the result of a recorded operation: writing it would change
// the value and not the gradient, so it is an error unless it happens under NoGrad. Leaves may be
// written.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <string_view>

namespace peal {

void check_in_place(std::string_view op, const Tensor& x);

}  // namespace peal
