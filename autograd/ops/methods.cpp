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

#define IN_PLACE_LIST(...) __VA_OPT__(, ) __VA_ARGS__
#define IN_PLACE(name, parameters, arguments)                    \
  const Tensor& Tensor::name##_ parameters const& {              \
    return peal::name##_(*this IN_PLACE_LIST arguments);         \
  }                                                              \
  Tensor Tensor::name##_ parameters const&& {                    \
    return peal::name##_(Tensor(*this) IN_PLACE_LIST arguments); \
  }                                                              \
  const Indexed& Indexed::name##_ parameters const {             \
    return store(peal::name(get() IN_PLACE_LIST arguments));     \
  }
#include <peal/autograd/core/in_place.def>
#undef IN_PLACE
#undef IN_PLACE_LIST

Tensor Tensor::view(const std::vector<std::int64_t>& shape) const { return reshape(shape); }
Tensor Tensor::to(DType dtype) const { return cast(*this, dtype); }

}  // namespace peal
