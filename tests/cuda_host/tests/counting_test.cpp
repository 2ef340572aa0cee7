// SPDX-License-Identifier: Apache-2.0
// Ops that give places, counts and random numbers, which have no gradient: on a simulated device
// against the CPU.
#include <peal/autograd/ops/ops.h>
#include <peal/tests/autograd/arrays.h>

#include <functional>
#include <vector>

#include <doctest/doctest.h>

using namespace peal;
using namespace peal::test;

namespace {

const Device device{DeviceType::cuda, 0};

using Function = std::function<Tensor(const Tensor& x)>;

void check_all(const Tensor& x, const std::vector<Function>& functions) {
  for (std::size_t i = 0; i < functions.size(); ++i) {
    CAPTURE(i);
    const Tensor got = functions[i](x.to(device)), expected = functions[i](x);
    CHECK(got.device() == device);
    CHECK(got.dtype() == expected.dtype());
    CHECK(got.shape() == expected.shape());
    CHECK(doubles(got) == doubles(expected));
  }
}

}  // namespace

TEST_CASE("places, counts and searches agree with the CPU") {
  const Tensor x =
      Tensor::from(std::vector<std::int64_t>{3, 0, 1, 0, 5, 2, 0, 0, 7, 1, 0, 4, 1, 1, 2}, {3, 5});
  const std::vector<Function> functions = {
      [](const Tensor& a) { return nonzero(a); },
      [](const Tensor& a) { return nonzero(a > 99); },
      [](const Tensor& a) { return where(a > 1)[1]; },
      [](const Tensor& a) { return where(a.reshape({15}))[0]; },
      [](const Tensor& a) { return masked_select(a, a > 0); },
      [](const Tensor& a) { return masked_scatter(a, a > 0, a + 100); },
      [](const Tensor& a) { return one_hot(a); },
      [](const Tensor& a) { return unique(a).values; },
      [](const Tensor& a) { return unique(a).inverse; },
      [](const Tensor& a) { return unique_consecutive(a).counts; },
      [](const Tensor& a) { return bincount(a.reshape({15}), {}, 12); },
      [](const Tensor& a) { return bincount(a.reshape({15}), cast(a, DType::f64).reshape({15})); },
      [](const Tensor& a) { return histc(cast(a, DType::f32), 4, 1, 5); },
      [](const Tensor& a) { return searchsorted(sort(a).values, slice(a, 1, 0, 2).clone()); },
      [](const Tensor& a) { return bucketize(a, arange(4, DType::i64, a.device()) * 2, true); },
      [](const Tensor& a) { return argsort(a, 0, true); },
      [](const Tensor& a) { return mode(a).indices; },
      [](const Tensor& a) { return median(cast(a, DType::f32), 0).indices; },
      [](const Tensor& a) {
        return expand(a.reshape({1, 3, 5}), {2, -1, -1});
      },
      [](const Tensor& a) { return triu(a > 0, 1); },
      [](const Tensor& a) { return tril_indices(3, 4, 0, a.device()); },
  };
  check_all(x, functions);
}

TEST_CASE("writing in place agrees with the CPU") {
  const Tensor x = reshape(arange(20), {4, 5});
  const auto after = [](auto write) -> Function {
    return [write](const Tensor& a) {
      const Tensor y = a.clone();
      write(y, arange(2, DType::i64, y.device()) * 2);
      return y;
    };
  };
  using Y = const Tensor&;
  check_all(x, {
                   after([](Y y, Y) { y[Ellipsis] = 3; }),
                   after([](Y y, Y) { y[Slice(1, 3)] = y[0]; }),
                   after([](Y y, Y i) { y[i] = -1; }),
                   after([](Y y, Y i) {
                     y[{Slice(1), i}] = -1;
                   }),
                   after([](Y y, Y i) {
                     y[{i, i}] = y[{i, 4}];
                   }),
                   after([](Y y, Y) { y[y > 7] = 0; }),
                   after([](Y y, Y i) {
                     index_put_(y, {cat({i, i})}, y[0], true);
                   }),
                   after([](Y y, Y i) { index_add_(y, 1, i, slice(y, 1, 3).clone()); }),
                   after([](Y y, Y i) { index_fill_(y, 0, i, 9); }),
                   after([](Y y, Y i) {
                     scatter_(y, 0, expand(i, {4, 2}), 7);
                   }),
                   after([](Y y, Y) { masked_fill_(y, y > 3, 1); }),
               });
}

TEST_CASE("random numbers are the CPU's") {
  const auto both = [](auto draw) {
    Generator here{5, 0}, there{5, 0};
    const Tensor expected = draw(Device{}, here), got = draw(device, there);
    CHECK(got.device() == device);
    CHECK(doubles(got) == doubles(expected));
    CHECK(here.offset == there.offset);
  };
  both([](Device on, Generator& g) { return rand({100}, DType::f32, on, g); });
  both([](Device on, Generator& g) { return randint(-5, 1000000007, {100}, DType::i64, on, g); });
  both([](Device on, Generator& g) { return randperm(50, DType::i64, on, g); });
  both([](Device on, Generator& g) { return bernoulli(full({100}, 0.4, DType::f32, on), g); });
  both([](Device on, Generator& g) {
    return multinomial(arange(9, DType::f64, on) + 1, 300, true, g);
  });
  both([](Device on, Generator& g) {
    return multinomial(arange(9, DType::f64, on) + 1, 9, false, g);
  });
}
