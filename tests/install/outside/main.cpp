// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/algorithms/table.h>
#include <peal/comm/draw/draw.h>
#include <peal/comm/simulate/simulate.h>
#include <peal/comm/verify/verify.h>
#include <peal/launch/command_line.h>
#include <peal/launch/training/trainer.h>
#include <peal/peal.h>
#if __has_include(<peal/comm/start/mpi.h>)
#include <peal/comm/start/mpi.h>
#endif

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
