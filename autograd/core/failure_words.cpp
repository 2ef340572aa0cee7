// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/failure_words.h>

#include <exception>

namespace peal {

std::string words_of_failure() {
  try {
    throw;
  } catch (const std::exception& failure) {
    return failure.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

}  // namespace peal
