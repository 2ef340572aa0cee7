// SPDX-License-Identifier: Apache-2.0
// gradcheck: an op's gradient in f64 against central differences, element by element. The output is
// weighted with fixed random numbers, so that every element of it counts differently.
#pragma once

#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/tape.h>

#include "arrays.h"

namespace peal::test {

using Function = std::function<Tensor(const Tensors&)>;

// The largest difference between gradient and central difference, over the largest gradient, over
// all inputs. f must be smooth within 1e-5 of the inputs, which are f64 leaves.
inline double gradient_error(const Function& f, const Tensors& inputs) {
  const auto loss = [&] {
    const Tensor y = f(inputs);
    return sum(y * normal<double>(y.shape(), 99));
  };
  for (const Tensor& input : inputs) input.set_requires_grad();
  for (const Tensor& input : inputs) input.zero_grad();
  loss().backward();
  NoGrad guard;
  double worst = 0;
  for (const Tensor& input : inputs) {
    const Tensor grad = input.grad();
    if (!grad.defined() || grad.shape() != input.shape()) return INFINITY;
    std::vector<double> numeric;
    double* x = input.data<double>();
    for (std::int64_t i = 0; i < input.numel(); ++i) {
      const double before = x[i], h = 1e-5;
      x[i] = before + h;
      const double above = loss().item<double>();
      x[i] = before - h;
      const double below = loss().item<double>();
      x[i] = before;
      numeric.push_back((above - below) / (2 * h));
    }
    worst = std::max(worst, distance(doubles(grad), numeric));
  }
  return worst;
}

}  // namespace peal::test
