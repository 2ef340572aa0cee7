// SPDX-License-Identifier: Apache-2.0
// Tensors made of numbers.
#include "value_rows.h"

namespace peal::test {

void add_making(Rows& rows) {
  const auto add = [&](const std::string& expression, const Tensor& y) {
    rows.add(expression, {}, y);
  };
  add("torch.tensor(3.5)", tensor(3.5));
  add("torch.tensor(3)", tensor(3));
  add("torch.tensor(True)", tensor(true));
  add("torch.tensor([1, 2, 3])", tensor({1, 2, 3}));
  add("torch.tensor([1])", tensor({1}));
  add("torch.tensor([[1]])", tensor({{1}}));
  add("torch.tensor([1, 2.5])", tensor({1, 2.5}));
  add("torch.tensor([True, False])", tensor({true, false}));
  add("torch.tensor([True, 2])", tensor({true, 2}));
  add("torch.tensor([[1, 2], [3, 4]])", tensor({{1, 2}, {3, 4}}));
  add("torch.tensor([[[1., 2]], [[3, 4]]])", tensor({{{1., 2}}, {{3, 4}}}));
  add("torch.tensor([])", tensor({}));
  add("torch.tensor([[], []])", tensor({{}, {}}));
  add("torch.tensor([1, 2], dtype=torch.float64)", tensor({1, 2}, DType::f64));
  add("torch.tensor([1.5, -2.5], dtype=torch.int32)", tensor({1.5, -2.5}, DType::i32));
  add("torch.tensor([0, 2], dtype=torch.bool)", tensor({0, 2}, DType::boolean));
  add("torch.tensor(2**62 + 1)", tensor((std::int64_t{1} << 62) + 1));
  add("torch.tensor([0.1], dtype=torch.float64)", tensor({0.1}, DType::f64));
  add("torch.tensor([1, 2])", tensor(std::vector<int>{1, 2}));

  add("torch.arange(5)", arange(5));
  add("torch.arange(5.)", arange(5.));
  add("torch.arange(4.5)", arange(4.5));
  add("torch.arange(2, 9, 3)", arange(2, 9, 3));
  add("torch.arange(9, 2, -3)", arange(9, 2, -3));
  add("torch.arange(0, 1, 0.3)", arange(0, 1, 0.3));
  add("torch.arange(0, 1, 0.1)", arange(0, 1, 0.1));
  add("torch.arange(1, 1)", arange(1, 1));
  add("torch.arange(-3, 3, dtype=torch.float16)", arange(-3, 3, 1, DType::f16));
  add("torch.arange(0, 2, 0.5, dtype=torch.float64)", arange(0, 2, 0.5, DType::f64));
  for (const std::int64_t steps : {0, 1, 2, 5, 10}) {
    add(concat("torch.linspace(-2, 3, ", steps, ")"), linspace(-2, 3, steps));
    add(concat("torch.linspace(1, 0, ", steps, ", dtype=torch.float64)"),
        linspace(1, 0, steps, DType::f64));
    add(concat("torch.logspace(-1, 2, ", steps, ", dtype=torch.float64)"),
        logspace(-1, 2, steps, 10, DType::f64));
    add(concat("torch.logspace(0, 3, ", steps, ", 2)"), logspace(0, 3, steps, 2));
  }
  add("torch.eye(3)", eye(3));
  add("torch.eye(2, 4, dtype=torch.int64)", eye(2, 4, DType::i64));
  add("torch.eye(4, 2, dtype=torch.bool)", eye(4, 2, DType::boolean));
  add("torch.eye(0)", eye(0));
  add("torch.zeros(2, 3, dtype=torch.int32)", zeros({2, 3}, DType::i32));
  const Tensor like = zeros({2, 3}, DType::f16);
  rows.add("torch.zeros_like(x[0])", {like}, zeros_like(like));
  rows.add("torch.ones_like(x[0], dtype=torch.int64)", {like}, ones_like(like, DType::i64));
  add("torch.full((2, 3), 7)", full({2, 3}, 7));
  add("torch.full((2, 3), 7.)", full({2, 3}, 7.));
  add("torch.full((2,), True)", full({2}, true));
  add("torch.full((2,), 2**62 + 1)", full({2}, (std::int64_t{1} << 62) + 1));
  add("torch.full((2,), 7, dtype=torch.float64)", full({2}, 7, DType::f64));
  rows.add("torch.full_like(x[0], 2.5)", {like}, full_like(like, 2.5));
  rows.add("torch.full_like(x[0], 2**62 + 1, dtype=torch.int64)", {like},
           full_like(like, (std::int64_t{1} << 62) + 1, DType::i64));
}

}  // namespace peal::test
