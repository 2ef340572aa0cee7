// SPDX-License-Identifier: Apache-2.0
// The ops of the table: f64 gradients against central differences, and f32 against f64, forward and
// backward.
#include "gradcheck.h"
#include "op_cases.h"

#include <doctest/doctest.h>

using namespace peal;
using namespace peal::test;

TEST_CASE("f64 gradients agree with central differences") {
  for (const OpCase& entry : all_cases()) {
    const auto f = [&](const Tensors& x) { return entry.op(x, entry.constants); };
    CAPTURE(entry.torch);
    CAPTURE(concat(entry.inputs[0].shape));
    CHECK(gradient_error(f, inputs_of<double>(entry)) < 1e-7);
  }
}

TEST_CASE("f32 agrees with f64") {
  for (const OpCase& entry : all_cases()) {
    CAPTURE(entry.torch);
    CAPTURE(concat(entry.inputs[0].shape));
    const Tensors wide = inputs_of<double>(entry), narrow = inputs_of<float>(entry);
    const Tensor reference = entry.op(wide, entry.constants), y = entry.op(narrow, entry.constants);
    CHECK(distance(y, reference) < 1e-5);
    reference.backward(normal<double>(y.shape(), 50));
    y.backward(normal<float>(y.shape(), 50));
    for (std::size_t i = 0; i < wide.size(); ++i) {
      CHECK(distance(narrow[i].grad(), wide[i].grad()) < 1e-5);
    }
  }
}
