// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/ops.h>

#include <cstdio>
#include <vector>

int main() {
  const peal::Tensor x = peal::Tensor::from(std::vector<float>{1, 2, 4}, {3});
  x.set_requires_grad();
  const peal::Tensor loss = peal::sum(x * x);
  loss.backward();
  std::printf("sum %g, gradient", static_cast<double>(loss.item<float>()));
  for (const float value : x.grad().to_vector<float>())
    std::printf(" %g", static_cast<double>(value));
  std::printf("\n");
  try {
    peal::fail(peal::concat("shape of ", x.numel()));
  } catch (const peal::Error& error) {
    std::printf("error: %s\n", error.what());
  }
}
