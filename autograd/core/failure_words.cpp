// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/failure_words.h>
#include <peal/autograd/core/out_of_memory.h>

#include <exception>
#include <new>

namespace peal {

std::string words_of_failure() {
  try {
    throw;
  } catch (const OutOfMemory& failure) {
    return concat(out_of_memory_words, failure.what());
  } catch (const std::bad_alloc& failure) {
    return concat(out_of_memory_words, failure.what());
  } catch (const std::exception& failure) {
    const std::string words = failure.what();
    return words.empty() ? "an exception without words" : words;
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

bool ran_out_of_memory() {
  try {
    throw;
  } catch (const OutOfMemory&) {
    return true;
  } catch (const std::bad_alloc&) {
    return true;
  } catch (...) {
    return false;
  }
}

void fail_instead(const std::string& words) {
  if (ran_out_of_memory()) throw OutOfMemory(words);
  fail(words);
}

}  // namespace peal
