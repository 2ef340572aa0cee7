// SPDX-License-Identifier: Apache-2.0
// What a convolution is padded by: numbers, or PyTorch's words for them: {.padding = "same"}.
// Thread safety: values.
#pragma once

#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/pair.h>

#include <string_view>

namespace peal {

// Zeros on both sides of each dimension. "valid": none. "same": as many as keep the sizes, with one
// more at the end where they are uneven; for strides of 1.
template <class Numbers>
struct ConvPadding : Numbers {
  using Numbers::Numbers;
  constexpr ConvPadding(const Numbers& numbers) : Numbers(numbers) {}  // NOLINT: a conversion
  ConvPadding(const char* text)                                        // NOLINT: a conversion
      : Numbers(0), word(text == std::string_view("same") ? "same" : "valid") {
    PEAL_CHECK(text == word,
               "convolution: expected a padding of numbers, \"same\" or \"valid\", "
               "got \"",
               text, "\"");
  }
  constexpr bool same() const { return word == "same"; }

  std::string_view word{};  // empty where there are numbers
};

}  // namespace peal
