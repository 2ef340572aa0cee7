// SPDX-License-Identifier: Apache-2.0
// Writes what operators make of every pair of types, of tensors with and without dimensions and of
// numbers, and tensors as text, for torch_values.py to compare with PyTorch. usage: torch_values
// FOLDER
#include <peal/autograd/ops/ops.h>

#include "value_rows.h"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>

using namespace peal;
using peal::test::Rows;

namespace {

constexpr DType types[] = {DType::f32, DType::f64, DType::f16, DType::bf16,   DType::i32,
                           DType::i64, DType::u8,  DType::i8,  DType::boolean};

void add_pair(Rows& rows, const Tensor& a, const Tensor& b) {
  const auto add = [&](const char* expression, const Tensor& y) {
    rows.add(expression, {a, b}, y);
  };
  add("x[0] + x[1]", a + b);
  if (a.dtype() != DType::boolean && b.dtype() != DType::boolean) add("x[0] - x[1]", a - b);
  add("x[0] * x[1]", a * b);
  add("x[0] / (x[1] + 1)", a / (b + 1));
  add("x[0] == x[1]", a == b);
  add("x[0] < x[1]", a < b);
  add("torch.where(x[0] != 1, x[0], x[1])", where(a != 1, a, b));
  if (b.dim() > 0) add("torch.cat((x[0], x[1]))", cat({a, b}));
}

void add_numbers(Rows& rows, const Tensor& a) {
  const auto add = [&](const char* expression, const Tensor& y) { rows.add(expression, {a}, y); };
  const bool mask = a.dtype() == DType::boolean;
  add("x[0] + 3", a + 3);
  add("x[0] + 2.5", a + 2.5);
  add("x[0] + True", a + true);
  add("3 * x[0]", 3 * a);
  add("2.5 * x[0]", 2.5 * a);
  add("x[0] * True", a * true);
  if (!mask) {
    add("x[0] - 3", a - 3);
    add("3 - x[0]", 3 - a);
    add("2.5 - x[0]", 2.5 - a);
    add("-x[0]", -a);
  }
  add("x[0] / 2", a / 2);
  add("6 / (x[0] + 1)", 6 / (a + 1));
  add("x[0] / 0.5", a / 0.5);
  add("x[0] == 2", a == 2);
  add("x[0] < 1.5", a < 1.5);
  add("2 >= x[0]", 2 >= a);
  add("x[0] != True", a != true);
  add("torch.where(x[0] == 1, x[0], 2)", where(a == 1, a, 2));
  add("torch.where(x[0] == 1, 0.5, x[0])", where(a == 1, 0.5, a));
}

void add_texts(Rows& rows) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto add = [&](const char* expression, const Tensor& x) {
    rows.add_text(expression, to_string(x));
  };
  const auto of = [](const std::vector<float>& values) {
    return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
  };
  add("torch.tensor(3.5)", Tensor::scalar(3.5f));
  add("torch.tensor([1, 2.5])", of({1, 2.5f}));
  add("torch.tensor([1., 2.])", of({1, 2}));
  add("torch.tensor([-1., 1e7])", of({-1, 1e7f}));
  add("torch.tensor([1, 2]) > 1", arange(2) > 0);
  add("torch.arange(-3, 300, 101)", arange(3) * 101 - 3);
  for (const DType dtype : types) {
    add(concat("torch.ones(2, 1, 2, dtype=", dtype, ")").c_str(), ones({2, 1, 2}, dtype));
    add(concat("torch.zeros(0, 3, dtype=", dtype, ")").c_str(), Tensor::zeros({0, 3}, dtype));
    add(concat("torch.zeros(0, dtype=", dtype, ")").c_str(), Tensor::zeros({0}, dtype));
  }
  add("torch.tensor([1e-5, 1.])", of({1e-5f, 1}));
  add("torch.tensor([1e9, 1.])", of({1e9f, 1}));
  add("torch.tensor([2e4, 0.5])", of({2e4f, 0.5f}));
  add("torch.tensor([math.nan, -math.inf, 1.])", of({NAN, static_cast<float>(-inf), 1}));
  add("torch.tensor([math.inf, 1.5])", of({static_cast<float>(inf), 1.5f}));
  add("torch.tensor([math.nan])", of({NAN}));
  add("torch.tensor([-0.])", of({-0.f}));
  add("torch.arange(30)", arange(30));
  add("torch.arange(1000) / 7", arange(1000) / 7);
  add("torch.arange(1001)", arange(1001));
  add("torch.arange(1100).reshape(11, 100) / 7", reshape(arange(1100), {11, 100}) / 7);
  add("torch.arange(1200).reshape(2, 5, 120)", reshape(arange(1200), {2, 5, 120}));
  add("torch.arange(2400.).reshape(2, 2, 10, 60)",
      reshape(arange(2400, DType::f32), {2, 2, 10, 60}));
  add("torch.ones(3, 40)", ones({3, 40}));
  add("torch.ones(2, requires_grad=True)", ones({2}).set_requires_grad());
  add("torch.ones(10, dtype=f64, requires_grad=True) * 2",
      ones({10}, DType::f64).set_requires_grad() * 2);
  add("torch.ones(13, requires_grad=True) * 2", ones({13}).set_requires_grad() * 2);
  add("torch.tensor([0.5, 100.25], dtype=f16)", cast(of({0.5, 100.25}), DType::f16));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    Rows rows;
    for (const DType left : types) {
      const Tensor a = cast(Tensor::from(std::vector<float>{0, 1, 2, 3}, {4}), left);
      const Tensor zero_dim = cast(Tensor::scalar(3.f), left);
      add_numbers(rows, a);
      add_numbers(rows, zero_dim);
      for (const DType right : types) {
        // Of these PyTorch's sum is i16, which peal has not.
        if ((left == DType::u8 && right == DType::i8) ||
            (left == DType::i8 && right == DType::u8)) {
          continue;
        }
        const Tensor b = cast(Tensor::from(std::vector<float>{1, 1, 3, 0}, {4}), right);
        add_pair(rows, a, b);
        add_pair(rows, a, cast(Tensor::scalar(2.f), right));
        add_pair(rows, zero_dim, cast(Tensor::scalar(2.f), right));
      }
    }
    add_texts(rows);
    test::add_choosing(rows);
    test::add_making(rows);
    test::add_order(rows);
    test::add_functions(rows);
    test::add_matrices(rows);
    test::add_linalg(rows);
    save_safetensors(std::filesystem::path(argv[1]) / "values.safetensors", rows.tensors,
                     rows.expressions);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
