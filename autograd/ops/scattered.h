// SPDX-License-Identifier: Apache-2.0
// scatter() and its kin between themselves (scatter.h): operands in one form, and what is recorded
// of it. Thread safety: pure functions.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/ops/strided.h>

#include <string_view>

namespace peal {

// The source has the index's shape, and the index x's sizes but for dim.
struct Scattered {
  int dim = 0;
  Shape part;     // of x
  Tensor source;  // undefined where there is none
  bool whole = true;
};

// Error where an operand is of another type or too large, or an index is out of range.
Scattered scattered_form(std::string_view op, const Tensor& x, int dim, const Tensor& index,
                         const Tensor& source);

// f of the part of x that the index reaches, put back.
template <class F>
Tensor of_scattered(std::string_view op, const Tensor& x, const Scattered& form, F&& f) {
  if (form.whole) return f(x);
  const Steps steps = steps_of_dense(x.shape());
  return with_part(op, x, f(part_of(op, x, form.part, steps, 0)), steps, 0);
}

// Of operands in that form.
Tensor set_at(const Tensor& x, int dim, const Tensor& index, const Tensor& source);
Tensor add_at(const Tensor& x, int dim, const Tensor& index, const Tensor& source);

}  // namespace peal
