// SPDX-License-Identifier: Apache-2.0
// What sixteen bits can say, and what they lose.
// docs/book/10-mixed-precision.md
#include <fmt/core.h>
#include <peal/autograd/autocast.h>
#include <peal/autograd/ops/ops.h>
#include <peal/examples/book/book.h>
#include <peal/nn/nn.h>

#include <cmath>
#include <string>
#include <vector>

namespace book {
namespace {

using namespace peal;

constexpr DType three[] = {DType::f32, DType::f16, DType::bf16};

// What becomes of a number in a type.
double rounded(double value, DType dtype) { return cast(tensor(value), dtype).item<double>(); }

// The distance from 1 to the next number of the type.
double step_at_one(DType dtype) {
  double step = 1;
  while (rounded(1 + step / 2, dtype) > 1) step /= 2;
  return step;
}

double smallest(DType dtype) {
  int power = 0;
  while (power > -200 && rounded(std::ldexp(1.0, power - 1), dtype) > 0) --power;
  return std::ldexp(1.0, power);
}

double largest_power(DType dtype) {
  int power = 0;
  while (power < 200 && std::isfinite(rounded(std::ldexp(1.0, power + 1), dtype))) ++power;
  return std::ldexp(1.0, power);
}

}  // namespace

void formats() {
  fmt::print("       1 and the next     smallest   largest 2^k     1/3\n");
  for (const DType dtype : three) {
    fmt::print("{:<5} {:>15.3g} {:>12.3g} {:>13.3g} {:>11.8f}\n", name_of(dtype),
               step_at_one(dtype), smallest(dtype), largest_power(dtype), rounded(1.0 / 3, dtype));
  }
  fmt::print("\nadding 0.001 to 1, a thousand times:\n");
  for (const DType dtype : three) {
    Tensor sum = cast(tensor(1.0), dtype);
    const Tensor little = cast(tensor(0.001), dtype);
    for (int i = 0; i < 1000; ++i) sum = sum + little;
    fmt::print("{:<5} {:g}\n", name_of(dtype), sum.item<double>());
  }
  fmt::print("\nwhat ops give under Autocast(bf16):\n");
  const Autocast guard(DType::bf16);
  const Tensor x = randn({4, 4}), h = matmul(x, x);
  const std::pair<const char*, Tensor> results[] = {{"matmul", h},
                                                    {"relu of that", relu(h)},
                                                    {"softmax of that", softmax(h, 1)},
                                                    {"sum of that", sum(h)},
                                                    {"that plus f32", h + x}};
  for (const auto& [what, result] : results) {
    fmt::print("{:<16} {}\n", what, name_of(result.dtype()));
  }
}

namespace {

// The gradients 2^-1 to 2^-40, which go back through a layer in f16, by a factor on the loss.
Tensor gradients_with(double scale) {
  nn::Linear layer(Tensor::zeros({40, 1}));
  const Tensor slopes = pow(2.0, arange(-1, -41, -1, DType::f32));
  Tensor y;
  {
    const Autocast guard(DType::f16);
    y = layer(ones({1, 1}));
  }
  (sum(y * slopes) * scale).backward();
  return layer.weight.grad();
}

}  // namespace

void lost_gradients() {
  fmt::print("of the gradients 2^-1 to 2^-40, by the factor on the loss:\n");
  for (const double scale : {1.0, 256.0, 65536.0, 1048576.0}) {
    int none = 0, infinite = 0;
    for (const float g : gradients_with(scale).to_vector<float>()) {
      none += g == 0 ? 1 : 0;
      infinite += std::isinf(g) ? 1 : 0;
    }
    fmt::print("{:>8}: {:>2} are 0, {} are infinite\n", scale, none, infinite);
  }

  fmt::print("\na scaler, with a gradient that is too large for f16 in the third step:\n");
  nn::Linear model(Tensor::zeros({1, 1}));
  nn::SGD optimizer(model.named_parameters(), {.lr = 1});
  nn::GradScaler scaler({.init_scale = 1024, .growth_interval = 2});
  for (int step = 0; step < 6; ++step) {
    optimizer.zero_grad();
    const Tensor x = full({1, 1}, step == 2 ? 500.0 : 1.0);
    Tensor loss;
    {
      const Autocast guard(DType::f16);
      loss = mean(model(x));
    }
    scaler.scale(loss).backward();
    const double used = scaler.get_scale();
    const bool stepped = scaler.step(optimizer);
    scaler.update();
    fmt::print("step {}: scale {:>5}, {}, w {}\n", step, used, stepped ? "taken" : "left out",
               model.weight.item<double>());
  }
}

}  // namespace book
