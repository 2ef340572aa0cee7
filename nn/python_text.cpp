// SPDX-License-Identifier: Apache-2.0
#include <peal/nn/python_text.h>

#include <array>
#include <charconv>
#include <cmath>

namespace peal::nn {

std::string python_text(bool value) { return value ? "True" : "False"; }

std::string python_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  const double size = std::abs(value);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  std::array<char, 64> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific)
                       .ptr;
  const std::string digits(text.data(), end);
  return plain && digits.find('.') == std::string::npos ? digits + ".0" : digits;
}

std::string python_text(const std::vector<std::int64_t>& values) {
  std::string text;
  for (const std::int64_t value : values) {
    text += (text.empty() ? "" : ", ") + std::to_string(value);
  }
  return "(" + text + (values.size() == 1 ? ",)" : ")");
}

std::string python_text(const Shape& shape) {
  return python_text(std::vector<std::int64_t>(shape.begin(), shape.end()));
}

std::string python_text(const Pair& pair) {
  return python_text(std::vector<std::int64_t>{pair.height, pair.width});
}

std::string python_text(const Triple& triple) {
  return python_text(std::vector<std::int64_t>{triple.depth, triple.height, triple.width});
}

std::string python_short(const Triple& triple) {
  return triple == Triple(triple.depth) ? std::to_string(triple.depth) : python_text(triple);
}

std::string python_short(const Pair& pair) {
  return pair.height == pair.width ? std::to_string(pair.height) : python_text(pair);
}

}  // namespace peal::nn
