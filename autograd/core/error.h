// SPDX-License-Identifier: Apache-2.0
// Errors: exceptions whose message says who, where, what was expected, what came, and what to do.
//
// PEAL_CHECK(condition, parts...) throws peal::Error when the condition is false; the parts
// (anything that fmt formats: numbers, text, shapes, dtypes) are concatenated only then. Without
// parts the error quotes the condition. The
// library never prints to stdout and never exits. Thread safety: free functions without state.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>

namespace peal {

// Every failure that peal reports.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Concatenates anything formattable into one string.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::string text;
  ((text += fmt::format("{}", parts)), ...);
  return text;
}

// Throws Error(message).
[[noreturn]] void fail(std::string message);

// What a check that failed says: its parts or, without any, its condition.
template <class... Parts>
std::string check_message([[maybe_unused]] const char* condition, const Parts&... parts) {
  if constexpr (sizeof...(parts) == 0) {
    return concat("expected ", condition);
  } else {
    return concat(parts...);
  }
}

}  // namespace peal

#define PEAL_CHECK(condition, ...)                                                \
  do {                                                                            \
    if (!(condition)) [[unlikely]]                                                \
      ::peal::fail(::peal::check_message(#condition __VA_OPT__(, ) __VA_ARGS__)); \
  } while (false)
