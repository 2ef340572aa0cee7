// SPDX-License-Identifier: Apache-2.0
// What is thrown about a sample says which it is. Thread safety: as of the function.
#pragma once

#include <peal/autograd/core/error.h>
#include <peal/autograd/core/failure_words.h>

#include <exception>
#include <string>
#include <string_view>

namespace peal::data {

// f(); an error of it that does not have `name` in it is nested in one that has. That memory ran
// out is no sample's fault.
template <class F>
auto naming(const std::string& name, const F& f) {
  try {
    return f();
  } catch (const std::exception& failure) {
    if (ran_out_of_memory()) throw;
    std::string_view words = failure.what();
    if (words.find(name) != std::string_view::npos) throw;
    constexpr std::string_view mark = "[data] ";
    if (words.starts_with(mark)) words.remove_prefix(mark.size());
    std::throw_with_nested(Error(concat(mark, name, ": ", words)));
  }
}

}  // namespace peal::data
