// SPDX-License-Identifier: Apache-2.0
// Order, and what is chosen by it. Elements differ, as gradients of equal ones do not exist.
#include "op_cases.h"

#include <peal/autograd/ops/ops.h>

namespace peal::test {

std::vector<OpCase> order_cases() {
  std::vector<OpCase> all;
  using T = const Tensor&;
  const auto one = [&](std::string torch, const Shape& shape, auto op) {
    all.push_back({std::move(torch),
                   [op](const Tensors& x, const Tensors&) { return op(x[0]); },
                   {{shape, Values::distinct}}});
  };
  for (const int dim : {0, 1, -1}) {
    one(concat("x[0].sort(", dim, ")[0]"), {4, 5, 3}, [dim](T x) { return sort(x, dim).values; });
    one(concat("x[0].sort(", dim, ", descending=True)[0] * x[0]"), {4, 5, 3},
        [dim](T x) { return sort(x, dim, true).values * x; });
    one(concat("x[0].topk(2, ", dim, ")[0]"), {4, 5, 3},
        [dim](T x) { return topk(x, 2, dim).values; });
    one(concat("x[0].topk(3, ", dim, ", largest=False)[0]"), {4, 5, 3},
        [dim](T x) { return topk(x, 3, dim, false).values; });
    one(concat("x[0].kthvalue(2, ", dim, ")[0]"), {4, 5, 3},
        [dim](T x) { return kthvalue(x, 2, dim).values; });
    one(concat("x[0].kthvalue(3, ", dim, ", keepdim=True)[0] * x[0]"), {4, 5, 3},
        [dim](T x) { return kthvalue(x, 3, dim, true).values * x; });
    one(concat("x[0].median(", dim, ")[0]"), {4, 5, 3},
        [dim](T x) { return median(x, dim).values; });
    one(concat("x[0].nanmedian(", dim, ", True)[0]"), {4, 5, 3},
        [dim](T x) { return nanmedian(x, dim, true).values; });
    one(concat("x[0].mode(", dim, ")[0]"), {4, 5, 3}, [dim](T x) { return mode(x, dim).values; });
    one(concat("x[0].quantile(0.3, ", dim, ")"), {4, 5, 3},
        [dim](T x) { return quantile(x, 0.3, dim); });
  }
  one("x[0].sort()[0]", {37}, [](T x) { return sort(x).values; });
  one("x[0].sort()[0]", {}, [](T x) { return sort(x).values; });
  one("torch.msort(x[0])", {5, 2}, [](T x) { return msort(x); });
  one("x[0].topk(0)[0].sum() + x[0]", {5}, [](T x) { return sum(topk(x, 0).values) + x; });
  one("x[0].median()", {4, 5}, [](T x) { return median(x); });
  one("x[0].nanmedian()", {3, 5}, [](T x) { return nanmedian(x); });
  struct Way {
    const char* name;
    Interpolation interpolation;
  };
  for (const Way& way :
       {Way{"linear", Interpolation::linear}, Way{"lower", Interpolation::lower},
        Way{"higher", Interpolation::higher}, Way{"nearest", Interpolation::nearest},
        Way{"midpoint", Interpolation::midpoint}}) {
    all.push_back({concat("x[0].quantile(k[0].to(x[0].dtype), 1, keepdim=True, interpolation='",
                          way.name, "')"),
                   [i = way.interpolation](const Tensors& x, const Tensors&) {
                     return quantile(x[0], {0.25, 0, 1, 0.625}, 1, true, i);
                   },
                   {{{3, 5}, Values::distinct}},
                   {Tensor::from(std::vector<double>{0.25, 0, 1, 0.625}, {4})}});
  }
  one("x[0].quantile(0.7)", {3, 4}, [](T x) { return quantile(x, 0.7); });
  one("x[0].quantile(0.7, keepdim=True)", {3, 4},
      [](T x) { return quantile(x, 0.7, std::nullopt, true); });
  return all;
}

}  // namespace peal::test
