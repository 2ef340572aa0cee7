// SPDX-License-Identifier: Apache-2.0
// An entry of the table of kernels on the CPU and on a simulated device, with equal arguments: what
// both write must agree. Each call is made with the device's tensors on a boundary of 64 bytes, all
// of them one element after it, and every other one after it (large ones on a boundary alone).
#pragma once

#include <peal/autograd/kernels/functors.h>
#include <peal/autograd/kernels/table.h>
#include <peal/tests/autograd/arrays.h>

#include <cmath>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

namespace peal::test {

inline const std::vector<DType> floating_types = {DType::f32, DType::f64, DType::f16, DType::bf16};
inline const std::vector<DType> number_types = {DType::f32, DType::f64, DType::f16, DType::bf16,
                                                DType::i32, DType::i64, DType::u8,  DType::i8};
inline const std::vector<DType> all_types = {DType::f32,  DType::f64, DType::f16,
                                             DType::bf16, DType::i32, DType::i64,
                                             DType::u8,   DType::i8,  DType::boolean};

// How far results may be apart, relative to the largest; integers are equal.
inline double bound_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 1e-5;
    case DType::f64:
      return 1e-12;
    case DType::f16:
      return 0x1p-9;
    case DType::bf16:
      return 0x1p-6;
    default:
      return 1e-30;
  }
}

// Normal; integers are small, and not negative where the type is not.
inline Tensor random(DType dtype, const Shape& shape, unsigned seed) {
  const std::vector<float> values = normals(shape.numel(), seed);
  const Tensor out = Tensor::empty(shape, dtype, Device{});
  visit(dtype, [&]<class T>() {
    for (std::size_t i = 0; i < values.size(); ++i) {
      float value = values[i];
      if (!is_floating(dtype)) value = std::round(3 * value);
      if (dtype == DType::u8) value = std::abs(value);
      if (dtype == DType::boolean) value = value > 0 ? 1.0f : 0.0f;
      out.data<T>()[i] = static_cast<T>(value);
    }
  });
  return out;
}

// i64 in [0, below).
inline Tensor indices(const Shape& shape, std::int64_t below, unsigned seed) {
  std::mt19937 engine(seed);
  const Tensor out = Tensor::empty(shape, DType::i64, Device{});
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    out.data<std::int64_t>()[i] =
        static_cast<std::int64_t>(engine() % static_cast<unsigned>(below));
  }
  return out;
}

inline double magnitude(double x) { return std::abs(x); }
inline Tensor map(const Tensor& x, double (*f)(double)) {
  visit(x.dtype(), [&]<class T>() {
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      x.data<T>()[i] =
          static_cast<T>(static_cast<functor::computed<T>>(f(static_cast<double>(x.data<T>()[i]))));
    }
  });
  return x;
}

// A copy on `device` that begins `shift` elements after a boundary.
inline Tensor placed(const Tensor& x, Device device, std::int64_t shift) {
  if (!x.defined()) return x;
  const Tensor copy =
      Tensor::empty({x.numel() + shift}, x.dtype(), device).detach(x.shape(), shift);
  copy.copy_(x);
  return copy;
}

template <class Arg>
auto placed_argument(const Arg& argument, Device device, int how, int& number) {
  if constexpr (std::is_same_v<Arg, Tensor>) {
    const int mine = number++;
    return placed(argument, device, how == 0 ? 0 : how == 1 ? 1 : mine % 2);
  } else {
    return argument;
  }
}

// Calls `entry` with the arguments on both; the first `written` tensors among them are compared.
// What these hold before is the same.
template <class Entry, class... Args>
void on_both(Entry entry, double bound, int written, const Args&... args) {
  const auto run = [&](Device device, int how) {
    int number = 0;
    // In braces: from the left.
    std::tuple<Args...> placed{placed_argument(args, device, how, number)...};
    Tensors tensors;
    std::apply(
        [&](const auto&... each) {
          const auto take = [&](const auto& one) {
            if constexpr (std::is_same_v<std::decay_t<decltype(one)>, Tensor>) {
              tensors.push_back(one);
            }
          };
          (take(each), ...);
          Tensor subject;
          for (const Tensor& tensor : tensors) {
            if (!subject.defined()) subject = tensor;
          }
          (kernels(device).*entry)("entry", subject, each...);
        },
        placed);
    return tensors;
  };
  const Tensors expected = run(Device{}, 0);
  double elements = 0;
  for (const Tensor& tensor : expected) elements += count_of(tensor);
  for (int how = 0; how < (elements < 20000 ? 3 : 1);
       ++how) {  // places of large ones differ little
    CAPTURE(how);
    const Tensors got = run({DeviceType::cuda, 0}, how);
    for (int i = 0; i < written; ++i) {
      CAPTURE(i);
      const auto at = static_cast<std::size_t>(i);
      if (!expected[at].defined()) continue;
      CAPTURE(concat(expected[at].dtype(), " ", expected[at].shape()));
      CHECK(distance(got[at], expected[at]) <= bound);
    }
  }
}

}  // namespace peal::test
