// SPDX-License-Identifier: Apache-2.0
// Words of a failure: what an exception of any type says, for a message to those whom it did not
// reach: another rank, a log, an Error around it.
//
// Thread safety: a free function without state.
#pragma once

#include <string>

namespace peal {

// Of the exception that is being handled: what() of a std::exception, or that it has none; of any
// other, that it is none. Never empty. Called in a catch block: elsewhere the program ends, as by
// any `throw;` without one.
std::string words_of_failure();

// The words of what f() fails with; empty where it does not.
template <class F>
std::string failure_in(F&& f) {
  try {
    f();
  } catch (...) {
    return words_of_failure();
  }
  return {};
}

}  // namespace peal
