// SPDX-License-Identifier: Apache-2.0
// The methods of Tensor, and of what x[...] gives, that are functions as well (core/methods.def).
#include <peal/autograd/ops/activation.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/binary_math.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/counting.h>
#include <peal/autograd/ops/diagonal.h>
#include <peal/autograd/ops/expand.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/in_place_functions.h>
#include <peal/autograd/ops/index.h>
#include <peal/autograd/ops/index_write.h>
#include <peal/autograd/ops/indexing.h>
#include <peal/autograd/ops/loss.h>
#include <peal/autograd/ops/masked.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/matmul.h>
#include <peal/autograd/ops/nearness.h>
#include <peal/autograd/ops/order.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/products.h>
#include <peal/autograd/ops/quantile.h>
#include <peal/autograd/ops/random.h>
#include <peal/autograd/ops/rearrange.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/scan.h>
#include <peal/autograd/ops/scatter.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/softmax.h>
#include <peal/autograd/ops/spread.h>
#include <peal/autograd/ops/stack.h>
#include <peal/autograd/ops/unfold.h>

namespace peal {

#define METHOD(result, name, parameters, arguments) \
  result Tensor::name parameters const { return peal::name arguments; }
#include <peal/autograd/core/methods.def>
#undef METHOD

#define METHOD(result, name, parameters, arguments) \
  result Indexed::name parameters const { return peal::name arguments; }
#include <peal/autograd/core/methods.def>
#undef METHOD

#define ARGUMENT_LIST(...) __VA_OPT__(, ) __VA_ARGS__
#define IN_PLACE(name, parameters, arguments)                    \
  const Tensor& Tensor::name##_ parameters const& {              \
    return peal::name##_(*this ARGUMENT_LIST arguments);         \
  }                                                              \
  Tensor Tensor::name##_ parameters const&& {                    \
    return peal::name##_(Tensor(*this) ARGUMENT_LIST arguments); \
  }                                                              \
  const Indexed& Indexed::name##_ parameters const {             \
    return store(peal::name(get() ARGUMENT_LIST arguments));     \
  }
#include <peal/autograd/core/in_place.def>
#undef IN_PLACE

#define WRITE(name, parameters, arguments, part_before) \
  const Tensor& Tensor::name parameters const& {        \
    peal::name(*this ARGUMENT_LIST arguments);          \
    return *this;                                       \
  }                                                     \
  Tensor Tensor::name parameters const&& {              \
    const Tensor here = *this;                          \
    peal::name(here ARGUMENT_LIST arguments);           \
    return here;                                        \
  }                                                     \
  const Indexed& Indexed::name parameters const {       \
    const Tensor part = part_before;                    \
    peal::name(part ARGUMENT_LIST arguments);           \
    return store(part);                                 \
  }
#define WRITE_ALL(name, parameters, arguments) \
  WRITE(name, parameters, arguments, peal::empty_like(get()))
#define WRITE_SOME(name, parameters, arguments) WRITE(name, parameters, arguments, get().clone())
#include <peal/autograd/core/writes.def>
#undef WRITE_ALL
#undef WRITE_SOME
#undef WRITE
#undef ARGUMENT_LIST

const Indexed& Indexed::add_(const Tensor& y, Scalar alpha) const { return *this += y * alpha; }
const Indexed& Indexed::sub_(const Tensor& y, Scalar alpha) const { return *this -= y * alpha; }

Tensor Tensor::new_empty(const Shape& shape, std::optional<DType> dtype) const {
  return peal::empty(shape, dtype.value_or(this->dtype()), device());
}
Tensor Tensor::new_zeros(const Shape& shape, std::optional<DType> dtype) const {
  return peal::zeros(shape, dtype.value_or(this->dtype()), device());
}
Tensor Tensor::new_ones(const Shape& shape, std::optional<DType> dtype) const {
  return peal::ones(shape, dtype.value_or(this->dtype()), device());
}
Tensor Tensor::new_full(const Shape& shape, Scalar value, std::optional<DType> dtype) const {
  return peal::full(shape, value, dtype.value_or(this->dtype()), device());
}

Tensor Tensor::view(const std::vector<std::int64_t>& shape) const { return reshape(shape); }
Tensor Tensor::to(DType dtype) const { return cast(*this, dtype); }

}  // namespace peal
