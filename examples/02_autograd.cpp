// SPDX-License-Identifier: Apache-2.0
// Tensors and gradients: finds the line y = 3x - 1 from noisy points, with nothing but ops and
// backward().
//
// Run it:   build/release/examples/02_autograd
//
// The book (docs/book): chapter 6, autograd by hand.
#include <peal/autograd/ops/ops.h>

#include <cmath>
#include <cstdio>

int main() {
  using namespace peal;
  manual_seed(0);
  const Tensor x = uniform({100, 1}, -1, 1);
  const Tensor y = x * 3.0 + (-1.0) + randn({100, 1}) * 0.1;

  const Tensor slope = Tensor::zeros({1}), offset = Tensor::zeros({1});
  slope.set_requires_grad();
  offset.set_requires_grad();

  for (int step = 0; step <= 100; ++step) {
    const Tensor error = x * slope + offset - y;
    const Tensor loss = mean(error * error);
    slope.zero_grad();
    offset.zero_grad();
    loss.backward();  // fills slope.grad() and offset.grad()
    if (step % 20 == 0) {
      std::printf("step %3d: loss %.4f, y = %.3f x + %.3f\n", step, loss.item<double>(),
                  slope.item<double>(), offset.item<double>());
    }
    add_(slope, slope.grad(), -0.5);
    add_(offset, offset.grad(), -0.5);
  }
  const bool found =
      std::abs(slope.item<double>() - 3) < 0.1 && std::abs(offset.item<double>() + 1) < 0.1;
  std::printf(found ? "That is the line.\n" : "That is not the line.\n");
  return found ? 0 : 1;
}
