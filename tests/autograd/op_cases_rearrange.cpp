// SPDX-License-Identifier: Apache-2.0
// Other shapes, places and repetitions of the same elements.
#include "op_cases.h"

#include <peal/autograd/ops/ops.h>

namespace peal::test {

std::vector<OpCase> rearrange_cases() {
  std::vector<OpCase> all;
  using T = const Tensor&;
  const auto one = [&](std::string torch, const Shape& shape, auto op) {
    all.push_back(
        {std::move(torch), [op](const Tensors& x, const Tensors&) { return op(x[0]); }, {{shape}}});
  };
  const auto many = [&](std::string torch, const std::vector<Input>& inputs, auto op) {
    all.push_back(
        {std::move(torch), [op](const Tensors& x, const Tensors&) { return op(x); }, inputs});
  };
  one("x[0].squeeze()", {1, 3, 1, 5}, [](T x) { return squeeze(x); });
  one("x[0].squeeze(1)", {1, 3, 1, 5}, [](T x) { return squeeze(x, 1); });
  one("x[0].squeeze(0).squeeze(-2)", {1, 3, 1, 5}, [](T x) { return squeeze(x, {0, -2}); });
  one("x[0].flatten(1, 2)", {2, 3, 4, 5}, [](T x) { return flatten(x, 1, 2); });
  one("x[0].flatten(0, -2)", {2, 3, 4, 5}, [](T x) { return flatten(x, 0, -2); });
  one("x[0].flatten(2, 2)", {2, 3, 4}, [](T x) { return flatten(x, 2, 2); });
  one("x[0].flatten()", {}, [](T x) { return flatten(x); });
  one("x[0].unflatten(1, (2, -1, 1))", {3, 6, 2}, [](T x) { return unflatten(x, 1, {2, -1, 1}); });
  one("x[0].unflatten(-1, (3, 2))", {3, 6}, [](T x) { return unflatten(x, -1, {3, 2}); });
  one("x[0].reshape(3, 4)", {2, 6}, [](T x) { return reshape(x, Shape{3, 4}); });
  for (const Shape& shape : {Shape{}, Shape{5}, Shape{3, 5}, Shape{2, 3, 5}}) {
    one("torch.atleast_1d(x[0])", shape, [](T x) { return atleast_1d(x); });
    one("torch.atleast_2d(x[0])", shape, [](T x) { return atleast_2d(x); });
    one("torch.atleast_3d(x[0])", shape, [](T x) { return atleast_3d(x); });
  }
  one("x[0].chunk(3, 1)[2] * x[0].chunk(3, 1)[0].sum()", {2, 7}, [](T x) {
    const Tensors parts = chunk(x, 3, 1);
    return parts[2] * sum(parts[0]);
  });
  one("x[0].tensor_split(3, -1)[0] - x[0].tensor_split(3, -1)[1]", {2, 8}, [](T x) {
    const Tensors parts = tensor_split(x, 3, -1);
    return parts[0] - parts[1];
  });
  one("torch.cat(x[0].tensor_split([1, 4, 3, -1])[::-1])", {7, 2}, [](T x) {
    const Tensors parts = tensor_split(x, std::vector<std::int64_t>{1, 4, 3, -1});
    return cat({parts[4], parts[3], parts[2], parts[1], parts[0]});
  });
  one("x[0].unbind(1)[1] * x[0].unbind(1)[2]", {3, 4, 2}, [](T x) {
    const Tensors parts = unbind(x, 1);
    return parts[1] * parts[2];
  });
  one("x[0].expand(4, -1, 5)", {3, 1}, [](T x) { return expand(x, {4, -1, 5}); });
  one("x[0].expand(2, 3)", {}, [](T x) { return expand(x, {2, 3}); });
  one("x[0].broadcast_to((2, 3, 5))", {3, 1}, [](T x) { return broadcast_to(x, Shape{2, 3, 5}); });
  many("x[0].expand_as(x[1]) * x[1]", {{{3, 1}}, {{2, 3, 4}}},
       [](const Tensors& x) { return expand_as(x[0], x[1]) * x[1]; });
  many("torch.broadcast_tensors(x[0], x[1])[0] + x[1] * 0", {{{3, 1}}, {{1, 4}}},
       [](const Tensors& x) { return broadcast_tensors(x)[0] + x[1] * 0; });
  one("x[0].repeat(2, 3)", {3, 5}, [](T x) { return repeat(x, {2, 3}); });
  one("x[0].repeat(2, 1, 3)", {3, 5}, [](T x) { return repeat(x, {2, 1, 3}); });
  one("x[0].repeat(4)", {3}, [](T x) { return repeat(x, {4}); });
  one("x[0].tile(2)", {3, 5}, [](T x) { return tile(x, {2}); });
  one("x[0].tile(3, 1, 2)", {3, 2}, [](T x) { return tile(x, {3, 1, 2}); });
  one("x[0].repeat_interleave(2)", {3, 2}, [](T x) { return repeat_interleave(x, 2); });
  one("x[0].repeat_interleave(3, 1)", {3, 2, 2}, [](T x) { return repeat_interleave(x, 3, 1); });
  all.push_back(
      {"x[0].repeat_interleave(k[0], 0)",
       [](const Tensors& x, const Tensors& k) { return repeat_interleave(x[0], k[0], 0); },
       {{{3, 2}}},
       {Tensor::from(std::vector<std::int64_t>{2, 0, 3}, {3})}});
  one("x[0].flip(0)", {5, 3}, [](T x) { return flip(x, 0); });
  one("x[0].flip(0, -1)", {3, 2, 5}, [](T x) { return flip(x, {0, -1}); });
  one("x[0].flip(1)", {16, 16}, [](T x) { return flip(x, 1); });
  one("x[0].fliplr().flipud()", {3, 4}, [](T x) { return flipud(fliplr(x)); });
  one("x[0].transpose(0, 1).flip(0)", {9, 12}, [](T x) { return flip(transpose(x, 0, 1), 0); });
  for (const int k : {0, 1, 2, 3, -1, 6}) {
    one(concat("x[0].rot90(", k, ")"), {3, 4, 2}, [k](T x) { return rot90(x, k); });
    one(concat("x[0].rot90(", k, ", (2, 0))"), {3, 4, 2}, [k](T x) { return rot90(x, k, {2, 0}); });
  }
  one("x[0].rot90(-1, (-1, 0))", {1, 5}, [](T x) { return rot90(x, -1, {-1, 0}); });
  one("x[0].roll(2)", {3, 4}, [](T x) { return roll(x, 2); });
  one("x[0].roll(-3, 1)", {3, 5}, [](T x) { return roll(x, -3, 1); });
  one("x[0].roll((7, -1), (0, 1))", {3, 5}, [](T x) { return roll(x, {7, -1}, {0, 1}); });
  one("x[0].roll(5, 0)", {5, 2}, [](T x) { return roll(x, 5, 0); });
  one("x[0].movedim(0, 2)", {2, 3, 4}, [](T x) { return movedim(x, 0, 2); });
  one("x[0].movedim((0, 3), (-1, 0))", {2, 3, 4, 5}, [](T x) {
    return movedim(x, {0, 3}, {-1, 0});
  });
  one("x[0].swapaxes(0, -1)", {2, 3, 4}, [](T x) { return swapaxes(x, 0, -1); });
  one("x[0].t()", {3, 4}, [](T x) { return t(x); });
  one("x[0].t()", {3}, [](T x) { return t(x); });
  for (const char* indexing : {"ij", "xy"}) {
    many(concat("(lambda a, b, c: a * b - c)(*torch.meshgrid(x[0], x[1], x[2], indexing='",
                indexing, "'))"),
         {{{2}}, {{3}}, {{4}}}, [indexing](const Tensors& x) {
           const Tensors all = meshgrid(x, indexing);
           return all[0] * all[1] - all[2];
         });
  }
  for (const int k : {0, 1, -2}) {
    one(concat("x[0].tril(", k, ")"), {2, 4, 5}, [k](T x) { return tril(x, k); });
    one(concat("x[0].triu(", k, ")"), {5, 3}, [k](T x) { return triu(x, k); });
    one(concat("x[0].diagonal(", k, ")"), {4, 5}, [k](T x) { return diagonal(x, k); });
    one(concat("x[0].diagonal(", k, ", -1, 0)"), {3, 2, 4},
        [k](T x) { return diagonal(x, k, -1, 0); });
    one(concat("x[0].diag_embed(", k, ")"), {2, 3}, [k](T x) { return diag_embed(x, k); });
    one(concat("x[0].diag_embed(", k, ", 0, 2)"), {2, 3},
        [k](T x) { return diag_embed(x, k, 0, 2); });
    one(concat("x[0].diag(", k, ")"), {4}, [k](T x) { return diag(x, k); });
    one(concat("x[0].diag(", k, ")"), {4, 3}, [k](T x) { return diag(x, k); });
  }
  many("torch.block_diag(*x)", {{{2, 3}}, {{}}, {{4}}, {{3, 1}}},
       [](const Tensors& x) { return block_diag(x); });
  many("torch.block_diag(*x)", {{{3, 2}}}, [](const Tensors& x) { return block_diag(x); });
  for (const bool wrap : {false, true}) {
    for (const Shape& shape : {Shape{3, 4}, Shape{9, 3}, Shape{4, 3}, Shape{3, 3, 3}}) {
      one(concat("(x[0] * 1).fill_diagonal_(2.5, ", wrap ? "True" : "False", ")"), shape,
          [wrap](T x) { return (x * 1).fill_diagonal_(2.5, wrap); });
    }
  }
  many("torch.hstack((x[0], x[1]))", {{{2, 3}}, {{2, 1}}},
       [](const Tensors& x) { return hstack(x); });
  many("torch.hstack((x[0], x[1]))", {{{2}}, {{}}}, [](const Tensors& x) { return hstack(x); });
  many("torch.vstack((x[0], x[1]))", {{{3}}, {{2, 3}}}, [](const Tensors& x) { return vstack(x); });
  many("torch.dstack((x[0], x[1]))", {{{2, 3}}, {{2, 3, 2}}},
       [](const Tensors& x) { return dstack(x); });
  many("torch.column_stack((x[0], x[1]))", {{{3}}, {{3, 2}}},
       [](const Tensors& x) { return column_stack(x); });
  return all;
}

}  // namespace peal::test
