// SPDX-License-Identifier: Apache-2.0
// Reading and writing by index and by mask.
#include "op_cases.h"

#include <peal/autograd/ops/ops.h>

namespace peal::test {
namespace {

using T = const Tensors&;

Tensor places(const std::vector<std::int64_t>& values, const Shape& shape) {
  return Tensor::from(values, shape);
}

}  // namespace

std::vector<OpCase> scatter_cases() {
  std::vector<OpCase> all;
  const auto add = [&](const char* torch, const std::vector<Input>& inputs, auto op,
                       Tensors constants) {
    all.push_back({torch, op, inputs, std::move(constants)});
  };
  // No place twice.
  const Tensor once = places({4, 1, 0, 2, 3, 3, 0, 2, 1, 4, 1, 0}, {2, 2, 3});
  const Tensor often = places({4, 4, 0, 4, 4, 2, 0, 0, 0, 0, 3, 1}, {2, 2, 3});
  const Tensor few = places({4, 0, 1, 3}, {1, 2, 2});
  const Tensor row = places({6, 0, 3}, {1, 3});
  add("x[0].scatter(1, k[0], x[1])", {{{2, 5, 3}}, {{2, 2, 3}}},
      [](T x, T k) { return scatter(x[0], 1, k[0], x[1]); }, {once});
  add("x[0].scatter(-2, k[0], x[1][:1, :2, :2])", {{{2, 5, 3}}, {{2, 4, 3}}},
      [](T x, T k) { return scatter(x[0], -2, k[0], x[1]); }, {few});
  add("x[0].scatter(1, k[0], 2.5)", {{{2, 5, 3}}},
      [](T x, T k) { return scatter(x[0], 1, k[0], 2.5); }, {once});
  add("x[0].scatter(1, k[0], x[1])", {{{3, 7}}, {{1, 3}}},
      [](T x, T k) { return scatter(x[0], 1, k[0], x[1]); }, {row});
  add("x[0].scatter_add(1, k[0], x[1])", {{{2, 5, 3}}, {{2, 2, 3}}},
      [](T x, T k) { return scatter_add(x[0], 1, k[0], x[1]); }, {often});
  add("x[0].scatter_add(1, k[0], x[1][:, :2, :2])", {{{2, 5, 3}}, {{1, 3, 3}}},
      [](T x, T k) { return scatter_add(x[0], 1, k[0], x[1]); }, {few});
  struct Way {
    const char* name;
    ScatterReduce reduce;
  };
  for (const Way& way : {Way{"sum", ScatterReduce::sum}, Way{"prod", ScatterReduce::prod},
                         Way{"mean", ScatterReduce::mean}, Way{"amax", ScatterReduce::amax},
                         Way{"amin", ScatterReduce::amin}}) {
    for (const bool include : {true, false}) {
      all.push_back(
          {concat("x[0].scatter_reduce(1, k[0], x[1], '", way.name,
                  "', include_self=", include ? "True)" : "False)"),
           [=](T x, T k) { return scatter_reduce(x[0], 1, k[0], x[1], way.reduce, include); },
           {{{2, 5, 3}, Values::distinct}, {{2, 2, 3}, Values::nonzero}},
           {often}});
    }
  }
  // Zeros among factors: one in a place, and two.
  const Tensor kept = cast(places({1, 0, 1, 1, 1, 0, 1, 1, 0, 0, 1, 1}, {2, 2, 3}), DType::boolean);
  add("x[0].scatter_reduce(1, k[0], torch.where(k[1], x[1], x[1] * 0), 'prod')",
      {{{2, 5, 3}, Values::distinct}, {{2, 2, 3}, Values::nonzero}},
      [](T x, T k) {
        return scatter_reduce(x[0], 1, k[0], where(k[1], x[1], x[1] * 0), ScatterReduce::prod);
      },
      {often, kept});

  const Tensor three = places({3, 0, 2}, {3}), again = places({1, 0, 1}, {3});
  for (const int dim : {0, 1, -1}) {
    Shape part{4, 5, 6};
    part[dim] = 3;
    const auto slices = [&](const char* name, auto op, const Tensor& index) {
      all.push_back({concat("x[0].", name, "(", dim, ", k[0], x[1])"),
                     [op, dim](T x, T k) { return op(x[0], dim, k[0], x[1]); },
                     {{{4, 5, 6}}, {part}},
                     {index}});
    };
    slices(
        "index_add", [](auto&... a) { return index_add(a...); }, again);
    slices(
        "index_copy", [](auto&... a) { return index_copy(a...); }, three);
  }
  add("x[0].index_add(1, k[0], x[1], alpha=-2.5)", {{{2, 5}}, {{2, 3}}},
      [](T x, T k) { return index_add(x[0], 1, k[0], x[1], -2.5); }, {again});
  add("x[0].index_fill(1, k[0], 0.5)", {{{2, 5, 3}}},
      [](T x, T k) { return index_fill(x[0], 1, k[0], 0.5); }, {again});
  add("x[0].index_fill(-1, k[0], x[1])", {{{2, 5}}, {{}}},
      [](T x, T k) { return index_fill(x[0], -1, k[0], x[1]); }, {three});

  // In place, of what an operation made.
  add("(x[0] * 1).scatter_(1, k[0], x[1])", {{{2, 5, 3}}, {{2, 2, 3}}},
      [](T x, T k) { return scatter_(x[0] * 1, 1, k[0], x[1]); }, {once});
  add("(lambda y: y.scatter_add_(1, k[0], y[:, 1:3].clone()) * y)(x[0] * 1)", {{{2, 5, 3}}},
      [](T x, T k) {
        const Tensor y = x[0] * 1;
        scatter_add_(y, 1, k[0], slice(y, 1, 1, 3));
        return y * y;
      },
      {often});
  add("torch.zeros(5, 3, dtype=x[0].dtype).index_add_(0, k[0], x[0])", {{{3, 3}}},
      [](T x, T k) {
        const Tensor y = Tensor::zeros({5, 3}, x[0].dtype(), x[0].device());
        return index_add_(y, 0, k[0], x[0]);
      },
      {again});
  add("(x[0] * 1).index_copy_(0, k[0], x[1]).index_fill_(1, k[0], -1)", {{{5, 4}}, {{3, 4}}},
      [](T x, T k) {
        const Tensor y = x[0] * 1;
        return index_fill_(index_copy_(y, 0, k[0], x[1]), 1, k[0], -1);
      },
      {three});
  add("(lambda y: y.index_put_((k[0], k[1]), x[1], accumulate=True))(x[0] * 1)", {{{4, 5}}, {{3}}},
      [](T x, T k) {
        const Tensor y = x[0] * 1;
        return index_put_(y, {k[0], k[1]}, x[1], true);
      },
      {again, places({2, 4, 2}, {3})});
  add("x[0].index_put((k[0],), x[1], accumulate=True)", {{{4, 5}}, {{5}}},
      [](T x, T k) { return index_put(x[0], {k[0]}, x[1], true); }, {again});

  const Tensor mask = lt(normal<float>({4, 5}, 5), 0.2), line = lt(normal<float>({5}, 6), 0.4);
  add("torch.masked_select(x[0], k[0])", {{{4, 5}}},
      [](T x, T k) { return masked_select(x[0], k[0]); }, {mask});
  add("torch.masked_select(x[0], k[0])", {{{3, 4, 1}}},
      [](T x, T k) { return masked_select(x[0], k[0]); }, {mask});
  add("x[0].masked_fill(k[0], -2.5)", {{{3, 4, 5}}},
      [](T x, T k) { return masked_fill(x[0], k[0], -2.5); }, {mask});
  add("x[0].masked_fill(k[0], x[1])", {{{4, 5}}, {{}}},
      [](T x, T k) { return masked_fill(x[0], k[0], x[1]); }, {line});
  add("(x[0] * 1).masked_fill_(k[0], 0) * x[0]", {{{4, 5}}},
      [](T x, T k) { return masked_fill_(x[0] * 1, k[0], 0) * x[0]; }, {line});
  add("x[0].masked_scatter(k[0], x[1])", {{{3, 4, 5}}, {{60}}},
      [](T x, T k) { return masked_scatter(x[0], k[0], x[1]); }, {mask});
  add("(x[0] * 1).masked_scatter_(k[0], x[1])", {{{4, 5}}, {{7, 3}}},
      [](T x, T k) { return masked_scatter_(x[0] * 1, k[0], x[1]); }, {line});

  add("torch.gather(x[0], 1, k[0])", {{{2, 5, 3}}}, [](T x, T k) { return gather(x[0], 1, k[0]); },
      {few});
  add("torch.gather(x[0], 0, k[0])", {{{7, 5}}}, [](T x, T k) { return gather(x[0], 0, k[0]); },
      {row});
  add("torch.take_along_dim(x[0], k[0], 1)", {{{3, 7}}},
      [](T x, T k) { return take_along_dim(x[0], k[0], 1); }, {row});
  add("torch.take_along_dim(x[0], k[0], -1)", {{{1, 7}}},
      [](T x, T k) { return take_along_dim(x[0], k[0], -1); }, {places({6, 0, 3, 1}, {4, 1})});
  add("torch.take_along_dim(x[0], k[0])", {{{3, 7}}},
      [](T x, T k) { return take_along_dim(x[0], k[0]); }, {row});
  add("torch.take(x[0], k[0])", {{{3, 7}}}, [](T x, T k) { return take(x[0], k[0]); },
      {places({20, -21, 3, 3, -1, 0}, {2, 3})});
  return all;
}

}  // namespace peal::test
