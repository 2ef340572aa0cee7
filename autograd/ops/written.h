// SPDX-License-Identifier: Apache-2.0
// Ops that write some elements of a tensor by a kernel: anew, in a copy, or in the tensor itself.
// Thread safety: pure functions.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/ops/in_place.h>
#include <peal/autograd/ops/operands.h>

#include <functional>
#include <string_view>

namespace peal {

using WriteOnto = std::function<void(const Tensor& out)>;

// x with what `write` does. Not recorded.
inline Tensor written(const Tensor& x, const WriteOnto& write) {
  const Tensor out = x.detach().clone();
  write(out);
  return out;
}

// x becomes what `anew` makes: where no gradient is wanted, by writing into its elements, unless
// what is read lies among them.
template <class Anew>
const Tensor& write_onto(std::string_view op, const Tensor& x, const Tensor& source,
                         bool may_be_direct, const WriteOnto& write, Anew&& anew) {
  if (write_is_recorded(op, x, source) || !may_be_direct) {
    write_back(op, x, anew());
  } else {
    write(x);
    x.storage()->bump_version();
  }
  return x;
}

// Neither is read while x is written.
inline bool lie_apart(const Tensor& x, const Tensor& index, const Tensor& source) {
  return x.storage() != index.storage() && x.storage() != source.storage();
}

// The number as an element of x, cast as an element would be.
inline Tensor number_of(std::string_view op, Scalar value, const Tensor& x) {
  if (x.dtype() == DType::boolean) value = value.to<bool>();
  if (value.is_floating() && !is_floating(x.dtype())) value = value.to<std::int64_t>();
  return number(op, value, x.dtype(), x.device());
}

}  // namespace peal
