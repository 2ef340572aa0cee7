// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/activation.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/binary_math.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/diagonal.h>
#include <peal/autograd/ops/in_place.h>
#include <peal/autograd/ops/in_place_functions.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/nearness.h>
#include <peal/autograd/ops/scan.h>

namespace peal {

#define IN_PLACE_LIST(...) __VA_OPT__(, ) __VA_ARGS__
#define IN_PLACE(name, parameters, arguments)                        \
  const Tensor& name##_(const Tensor& x IN_PLACE_LIST parameters) {  \
    write_back(#name "_", x, peal::name(x IN_PLACE_LIST arguments)); \
    return x;                                                        \
  }                                                                  \
  Tensor name##_(Tensor&& x IN_PLACE_LIST parameters) {              \
    const Tensor here = std::move(x);                                \
    return name##_(here IN_PLACE_LIST arguments);                    \
  }
#include <peal/autograd/core/in_place.def>
#undef IN_PLACE
#undef IN_PLACE_LIST

}  // namespace peal
