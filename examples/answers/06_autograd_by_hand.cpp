// SPDX-License-Identifier: Apache-2.0
// Answers to the exercises of docs/book/06-autograd-by-hand.md.
#include <peal/autograd/checkpoint.h>
#include <peal/autograd/core/allocator.h>
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/tape.h>
#include <peal/nn/models/mlp.h>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <functional>
#include <vector>

namespace {

using namespace peal;

// 1. A quotient a / b has the slopes 1 / b and -a / b^2.
Tensor quotient(const Tensor& a, const Tensor& b) {
  const Tensor y = a.detach() / b.detach();
  return record("quotient", y, {a, b}, [a = save(a), b = save(b)](const Tensor& g, Needs) {
    return Tensors{g / b(), g * a() * -1.0 / (b() * b())};
  });
}

// 2. Lines y, y + y, that + that ...: how often lines are visited when every line hands its
// gradient on at once, to each of its inputs.
std::int64_t visits_at_once(int line) { return line == 0 ? 1 : 1 + 2 * visits_at_once(line - 1); }

// 3. The most bytes of a step of 16 equal layers, in so many pieces.
std::size_t most_bytes(int pieces) {
  constexpr int layers = 16;
  manual_seed(1);
  std::vector<nn::Linear> all;
  for (int i = 0; i < layers; ++i) all.emplace_back(64, 64);
  const Tensor rows = randn({1024, 64});
  const auto step = [&] {
    Tensor h = rows;
    for (int piece = 0; piece < pieces; ++piece) {
      h = checkpoint(
          [&all, piece, pieces](const Tensor& in) {
            Tensor out = in;
            for (int i = layers / pieces * piece; i < layers / pieces * (piece + 1); ++i) {
              out = tanh(all[static_cast<std::size_t>(i)](out));
            }
            return out;
          },
          h);
    }
    mean(h).backward();
  };
  step();
  const std::size_t before = cpu_allocator_statistics().in_use;
  cpu_reset_peak();
  step();
  return cpu_allocator_statistics().peak - before;
}

}  // namespace

TEST_CASE("6.1: a quotient's slopes are those of small steps") {
  const Tensor a = tensor(3.0).set_requires_grad(), b = tensor(-2.0).set_requires_grad();
  quotient(a, b).backward();
  const double h = 1e-6;
  CHECK(a.grad().item<double>() == doctest::Approx(((3 + h) / -2 - (3 - h) / -2) / (2 * h)));
  CHECK(b.grad().item<double>() == doctest::Approx((3 / (-2 + h) - 3 / (-2 - h)) / (2 * h)));
}

TEST_CASE("6.2: from the last line to the first each line is visited once") {
  CHECK(visits_at_once(20) == 2097151);  // by the tape: 21
  const Tensor x = tensor(1.0).set_requires_grad();
  Tensor y = x;
  for (int i = 0; i < 20; ++i) y = y + y;
  y.backward();
  CHECK(x.grad().item<double>() == 1048576);
}

TEST_CASE("6.3: as many pieces as the root of the layers keep the least") {
  // In p pieces, p inputs of pieces stay, and while one is computed anew what its layers keep.
  const auto kept = [](int pieces) { return pieces + 16 / pieces; };
  for (const int pieces : {1, 2, 8, 16}) CHECK(kept(4) < kept(pieces));
  const std::size_t four = most_bytes(4);
  CHECK(four < most_bytes(1));
  CHECK(four < most_bytes(16));
}
