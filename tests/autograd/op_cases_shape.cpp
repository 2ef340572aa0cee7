// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/ops.h>

#include "op_cases.h"

namespace peal::test {

std::vector<OpCase> shape_cases() {
  std::vector<OpCase> all;
  const auto one = [&](std::string torch, const Shape& shape, auto op) {
    all.push_back(
        {std::move(torch), [op](const Tensors& x, const Tensors&) { return op(x[0]); }, {{shape}}});
  };
  one("x[0].permute(2, 0, 1)", {3, 5, 7}, [](const Tensor& x) { return permute(x, {2, 0, 1}); });
  one("x[0].permute(0, 2, 1, 3)", {2, 3, 5, 4}, [](const Tensor& x) {
    return permute(x, {0, 2, -3, -1});
  });
  one("x[0].permute(2, 0, 3, 1, 4)", {2, 3, 1, 4, 5}, [](const Tensor& x) {
    return permute(x, {2, 0, 3, 1, 4});
  });
  one("x[0].permute(0)", {9}, [](const Tensor& x) { return permute(x, {0}); });
  one("x[0].transpose(0, 1)", {17, 33}, [](const Tensor& x) { return transpose(x, 0, 1); });
  one("x[0].transpose(-1, -2)", {2, 3, 5}, [](const Tensor& x) { return transpose(x, -1, -2); });
  one("x[0].transpose(1, 1)", {3, 5}, [](const Tensor& x) { return transpose(x, 1, 1); });
  one("x[0][1:3]", {5, 3}, [](const Tensor& x) { return slice(x, 0, 1, 3); });
  one("x[0][:, 2:-1]", {3, 7, 2}, [](const Tensor& x) { return slice(x, 1, 2, -1); });
  one("x[0][..., 1::3]", {3, 2, 9},
      [](const Tensor& x) { return slice(x, -1, 1, std::numeric_limits<std::int64_t>::max(), 3); });
  one("x[0][-100:100:2]", {5}, [](const Tensor& x) { return slice(x, 0, -100, 100, 2); });
  one("x[0].narrow(1, 2, 3)", {3, 7}, [](const Tensor& x) { return narrow(x, 1, 2, 3); });
  one("x[0].narrow(-1, 0, 1)", {3, 7, 2}, [](const Tensor& x) { return narrow(x, -1, 0, 1); });
  one("x[0].select(1, -2)", {3, 5, 2}, [](const Tensor& x) { return select(x, 1, -2); });
  for (const int dim : {0, 1, -1}) {
    one(concat("x[0].cumsum(", dim, ")"), {5, 7, 3},
        [dim](const Tensor& x) { return cumsum(x, dim); });
  }
  one("x[0].cumsum(0)", {70}, [](const Tensor& x) { return cumsum(x, 0); });
  one("x[0].unsqueeze(-1)", {3, 5}, [](const Tensor& x) { return unsqueeze(x, -1); });
  one("x[0].squeeze(1)", {3, 1, 5}, [](const Tensor& x) { return squeeze(x, 1); });
  one("torch.cat([x[0], x[0] * 2], -1)", {3, 5}, [](const Tensor& x) {
    return cat({x, x * 2.0}, -1);
  });
  one("torch.cat(x[0].split([2, 4, 1], 1)[::-1], 1)", {3, 7, 2}, [](const Tensor& x) {
    const Tensors parts = split(x, std::vector<std::int64_t>{2, 4, 1}, 1);
    return cat({parts[2], parts[1], parts[0]}, 1);
  });
  one("x[0].split(3, -1)[1] * x[0].split(3, -1)[0]", {2, 8}, [](const Tensor& x) {
    const Tensors parts = split(x, 3, -1);
    return parts[1] * parts[0];
  });
  for (const int dim : {0, 1, 2, -1}) {
    all.push_back({concat("torch.stack([x[0], x[1], x[0]], ", dim, ")"),
                   [dim](const Tensors& x, const Tensors&) {
                     return stack({x[0], x[1], x[0]}, dim);
                   },
                   {{{3, 5}}, {{3, 5}}}});
  }
  one("torch.cat([x[0] * i for i in range(130)], 1)", {3, 2}, [](const Tensor& x) {
    Tensors all;
    for (int i = 0; i < 130; ++i) all.push_back(x * static_cast<double>(i));
    return cat(all, 1);
  });
  all.push_back({"torch.cat([x[0], x[1], x[2]], 1)",
                 [](const Tensors& x, const Tensors&) { return cat(x, 1); },
                 {{{2, 1, 3}}, {{2, 4, 3}}, {{2, 2, 3}}}});

  const auto i64 = [](std::vector<std::int64_t> values, const Shape& shape) {
    return Tensor::from(values, shape);
  };
  for (const int dim : {0, 1, -1}) {
    all.push_back(
        {concat("torch.index_select(x[0], ", dim, ", k[0])"),
         [dim](const Tensors& x, const Tensors& k) { return index_select(x[0], dim, k[0]); },
         {{{3, 4, 5}}},
         {i64({2, 0, 2, 1, 2}, {5})}});
  }
  all.push_back({"torch.gather(x[0], 1, k[0])",
                 [](const Tensors& x, const Tensors& k) { return gather(x[0], 1, k[0]); },
                 {{{2, 5, 3}}},
                 {i64({4, 4, 0, 1, 4, 2, 0, 0, 0, 3, 3, 1}, {2, 2, 3})}});
  all.push_back({"torch.gather(x[0], -1, k[0])",
                 [](const Tensors& x, const Tensors& k) { return gather(x[0], -1, k[0]); },
                 {{{3, 7}}},
                 {i64({6, 0, 3}, {3, 1})}});
  for (const Shape& shape : {Shape{}, Shape{6}, Shape{2, 3}, Shape{1, 2, 3}}) {
    std::vector<std::int64_t> ids{4, 0, 6, 4, 4, 1};
    ids.resize(static_cast<std::size_t>(shape.numel()));
    all.push_back({"F.embedding(k[0], x[0])",
                   [](const Tensors& x, const Tensors& k) { return embedding(k[0], x[0]); },
                   {{{7, 5}}},
                   {i64(ids, shape)}});
    for (const int padding : {4, -3}) {
      all.push_back(
          {concat("F.embedding(k[0], x[0], padding_idx=", padding, ")"),
           [padding](const Tensors& x, const Tensors& k) { return embedding(k[0], x[0], padding); },
           {{{7, 5}}},
           {i64(ids, shape)},
           false});
    }
  }
  return all;
}

}  // namespace peal::test
