// SPDX-License-Identifier: Apache-2.0
// Tensors written as numbers in nested braces, as in PyTorch:
//
//   tensor(3.5)   tensor({1, 2, 3})   tensor({{1, 2}, {3, 4}})   tensor({true, false})
//
// and from a std::vector of numbers. Integers are i64, with a floating number among them f32, and
// true and false alone bool, unless a type is named. Tensor::from() keeps the type of what it
// copies. Thread safety: values.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <initializer_list>
#include <optional>
#include <type_traits>
#include <variant>
#include <vector>

namespace peal {

// A number, or a row of literals. It is read while the expression that it stands in is evaluated.
class Literal {
 public:
  Literal(Scalar number) : content_(number) {}  // NOLINT: a conversion
  template <class T>
  requires std::is_arithmetic_v<T> Literal(T number) : content_(Scalar(number)) {}      // NOLINT
  Literal(std::initializer_list<Literal> row) : content_(std::vector<Literal>(row)) {}  // NOLINT

  template <class T>
  requires std::is_arithmetic_v<T> Literal(const std::vector<T>& row)  // NOLINT
      : content_(std::vector<Literal>(row.begin(), row.end())) {}

  const Scalar* number() const { return std::get_if<Scalar>(&content_); }
  const std::vector<Literal>& row() const { return std::get<std::vector<Literal>>(content_); }

 private:
  std::variant<Scalar, std::vector<Literal>> content_;
};

// Error where rows differ in length or depth, which names the place, and for a number that the type
// does not hold.
Tensor tensor(const Literal& literal, std::optional<DType> dtype = std::nullopt,
              Device device = context().device);

}  // namespace peal
