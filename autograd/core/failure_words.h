// SPDX-License-Identifier: Apache-2.0
// Words of a failure: what an exception of any type says, for a message to those whom it did not
// reach: another rank, a log, an Error around it.
//
// Thread safety: free functions without state.
#pragma once

#include <string>

namespace peal {

// Of the exception that is being handled: what() of a std::exception, or that it has none; of any
// other, that it is none. Never empty. Called in a catch block: elsewhere the program ends, as by
// any `throw;` without one.
std::string words_of_failure();

// Whether the exception that is being handled is of memory that ran out: OutOfMemory, or
// std::bad_alloc. Called in a catch block.
bool ran_out_of_memory();

// Throws these words instead of the exception that is being handled: as OutOfMemory where it is of
// that, else as Error. Called in a catch block.
[[noreturn]] void fail_instead(const std::string& words);

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
