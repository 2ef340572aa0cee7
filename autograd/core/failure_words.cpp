// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/failure_words.h>

#include <exception>

namespace peal {

std::string words_of_failure() {
  try {
    throw;
  } catch (const std::exception& failure) {
    const std::string words = failure.what();
    return words.empty() ? "an exception without words" : words;
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

}  // namespace peal
