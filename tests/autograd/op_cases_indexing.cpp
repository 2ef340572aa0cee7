// SPDX-License-Identifier: Apache-2.0
// Parts of tensors that are read and written, and operators that write in place.
#include "op_cases.h"

#include <peal/autograd/ops/ops.h>

namespace peal::test {
namespace {

using Op = std::function<Tensor(const Tensors& x, const Tensors& k)>;

Tensor indices(const std::vector<std::int64_t>& values, const Shape& shape) {
  return Tensor::from(values, shape);
}

void reads(std::vector<OpCase>& all) {
  const Shape shape{4, 5, 3};
  const auto add = [&](const char* torch, Op op, Tensors constants = {}) {
    all.push_back({torch, std::move(op), {{shape}}, std::move(constants)});
  };
  using T = const Tensors&;
  add("x[0][1]", [](T x, T) { return x[0][1]; });
  add("x[0][-1][2][0]", [](T x, T) { return x[0][-1][2][0]; });
  add("x[0][1:3]", [](T x, T) { return x[0][Slice(1, 3)]; });
  add("x[0][:, ::2, None]", [](T x, T) { return x[0][{Slice(), Slice(None, None, 2), None}]; });
  add("x[0][..., -1]", [](T x, T) { return x[0][{Ellipsis, -1}]; });
  add("x[0][None, -3:-1, ..., 1:]", [](T x, T) {
    return x[0][{None, Slice(-3, -1), Ellipsis, Slice(1)}];
  });
  add("x[0][2, 1:4][::2]", [](T x, T) { return x[0][{2, Slice(1, 4)}][Slice(None, None, 2)]; });
  const Tensor i = indices({3, 0, -1, 0}, {4}), j = indices({1, 4, 4, -5}, {4});
  add("x[0][k[0]]", [](T x, T k) { return x[0][k[0]]; }, {i});
  add("x[0][:, k[0]]", [](T x, T k) { return x[0][{Slice(), k[0]}]; }, {i});
  add("x[0][k[0], k[1]]", [](T x, T k) { return x[0][{k[0], k[1]}]; }, {i, j});
  add("x[0][k[0], 1:, k[1] % 3]",
      [](T x, T k) {
        return x[0][{k[0], Slice(1), k[1]}];
      },
      {i, indices({1, 2, 0, 1}, {4})});
  add("x[0][:, k[0], k[1]]",
      [](T x, T k) {
        return x[0][{Slice(), k[0], k[1]}];
      },
      {i, indices({2, 0}, {2, 1})});
  add("x[0][1, :, k[0]]",
      [](T x, T k) {
        return x[0][{1, Slice(), k[0]}];
      },
      {indices({2, 0, 2, 1}, {2, 2})});
  add("x[0][k[0]]", [](T x, T k) { return x[0][k[0]]; }, {lt(normal<float>({4, 5}, 3), 0.3)});
  add("x[0][1:, k[0]]",
      [](T x, T k) {
        return x[0][{Slice(1), k[0]}];
      },
      {lt(normal<float>({5, 3}, 4), 0.1)});
  add("x[0][x[0] > 0.25]", [](T x, T) { return x[0][x[0] > 0.25]; });
}

// y is x[0] * 1, so that it may be written.
void writes(std::vector<OpCase>& all) {
  const auto add = [&](const std::string& torch, const Shape& values, Op op,
                       Tensors constants = {}) {
    all.push_back({"(lambda y: [" + torch + ", y][-1])(x[0] * 1)",
                   std::move(op),
                   {{{4, 5, 3}}, {values}},
                   std::move(constants)});
  };
  using T = const Tensors&;
  const auto writes = [](auto write) {
    return [write](T x, T k) {
      const Tensor y = x[0] * 1;
      write(y, x[1], k);
      return y;
    };
  };
  using Y = const Tensor&;
  add("y.__setitem__(1, x[1])", {5, 3}, writes([](Y y, Y v, T) { y[1] = v; }));
  add("y.__setitem__(1, x[1])", {}, writes([](Y y, Y v, T) { y[1] = v; }));
  add("y.__setitem__((slice(None), slice(0, 4, 2)), x[1])", {2, 1}, writes([](Y y, Y v, T) {
        y[{Slice(), Slice(0, 4, 2)}] = v;
      }));
  add("y[2].__setitem__((Ellipsis, 1), x[1])", {5}, writes([](Y y, Y v, T) {
        y[2][{Ellipsis, 1}] = v;
      }));
  add("y.__setitem__(-1, y[0].clone() * x[1])", {3}, writes([](Y y, Y v, T) { y[-1] = y[0] * v; }));
  const Tensor i = indices({3, 0, -2}, {3});
  add("y.__setitem__(k[0], x[1])", {3, 5, 3}, writes([](Y y, Y v, T k) { y[k[0]] = v; }), {i});
  add("y.__setitem__((slice(1, 3), k[0]), x[1])", {3, 1}, writes([](Y y, Y v, T k) {
        y[{Slice(1, 3), k[0]}] = v;
      }),
      {indices({3, 0, -1}, {3})});
  add("y.__setitem__((k[0], slice(None), k[1]), x[1])", {3, 5}, writes([](Y y, Y v, T k) {
        y[{k[0], Slice(), k[1]}] = v;
      }),
      {i, indices({0, 2, 1}, {3})});
  const Tensor mask = lt(normal<float>({4, 5}, 5), 0.2);
  add("y.__setitem__(k[0], x[1])", {3}, writes([](Y y, Y v, T k) { y[k[0]] = v; }), {mask});
  add("y.__setitem__(y > 0.25, x[1])", {}, writes([](Y y, Y v, T) { y[y > 0.25] = v; }));
  add("y.__setitem__(k[0], y[k[0]] + x[1])", {3}, writes([](Y y, Y v, T k) { y[k[0]] += v; }),
      {indices({1, 2, 0}, {3})});
  add("y[:, 1].mul_(x[1])", {3}, writes([](Y y, Y v, T) { y[{Slice(), 1}] *= v; }));
  add("y.add_(x[1])", {5, 1}, writes([](Y y, Y v, T) { y += v; }));
  add("y.sub_(x[1])", {4, 5, 3}, writes([](Y y, Y v, T) { y -= v; }));
  add("y.div_(x[1].abs() + 1)", {3}, writes([](Y y, Y v, T) { y /= abs(v) + 1; }));
  add("y.mul_(x[1].sum()).mul_(2).sub_(1)", {3}, writes([](Y y, Y v, T) {
        y *= sum(v);
        y *= 2;
        y -= 1;
      }));
  all.push_back({"(lambda y: (y * 2) + y.mul_(x[1]))(x[0] * 3)",
                 [](T x, T) {
                   const Tensor y = x[0] * 3, before = y * 2;
                   y *= x[1];
                   return before + y;
                 },
                 {{{3, 5}}, {{5}}}});
  all.push_back({"(lambda y: (y ** 2) * x[1] + (y * y))(x[0] * 3)",
                 [](T x, T) {  // peal keeps what backward needs of y before it is written
                   const Tensor y = x[0] * 3, before = y * y;
                   const Tensor same = y;
                   y *= y;
                   return same * x[1] + before;
                 },
                 {{{3, 5}}, {{5}}}});
  all.push_back(
      {"(lambda out: [[out.__setitem__(i, x[0][i] * x[0][i]) for i in range(3)], out][-1])"
       "(torch.zeros(4, 5, dtype=x[0].dtype))",
       [](T x, T) {
         const Tensor out = Tensor::zeros({4, 5}, x[0].dtype(), x[0].device());
         for (int i = 0; i < 3; ++i) out[i] = x[0][i] * x[0][i];
         return out;
       },
       {{{3, 5}}}});
}

}  // namespace

std::vector<OpCase> indexing_cases() {
  std::vector<OpCase> all;
  reads(all);
  writes(all);
  return all;
}

}  // namespace peal::test
