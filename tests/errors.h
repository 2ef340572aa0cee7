// SPDX-License-Identifier: Apache-2.0
// What a call throws, as text to look into.
#pragma once

#include <doctest/doctest.h>

#include <exception>
#include <string>

namespace peal::testing {

// Its message, or "nothing".
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline void check_has(const std::string& text, const std::string& part) {
  INFO("message: ", text);
  INFO("expected part: ", part);
  CHECK(contains(text, part));
}

}  // namespace peal::testing
