// SPDX-License-Identifier: Apache-2.0
// Values as Python writes them, for the text of modules (extra_repr). Thread safety: pure
// functions.
#pragma once

#include <peal/autograd/core/shape.h>
#include <peal/autograd/ops/pair.h>

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace peal::nn {

std::string python_text(bool value);    // True
std::string python_text(double value);  // 1e-05, 0.1, 2.0
template <std::integral Number>
requires(!std::same_as<Number, bool>) std::string python_text(Number value) {
  return std::to_string(value);
}
std::string python_text(const std::vector<std::int64_t>& values);  // (1, 2), or (3,) of one
std::string python_text(const Shape& shape);
std::string python_text(const Pair& pair);      // (1, 2)
std::string python_text(const Triple& triple);  // (1, 2, 3)
template <class T>
std::string python_text(const std::optional<T>& value) {
  return value ? python_text(*value) : "None";
}
// As a number where all are equal.
std::string python_short(const Pair& pair);
std::string python_short(const Triple& triple);

}  // namespace peal::nn
