// SPDX-License-Identifier: Apache-2.0
// setjmp and longjmp round C libraries of image formats, whose errors must not return: libjpeg's
// and libpng's. A state has a std::jmp_buf `back` to jump to, and `words` for what was wrong.
// Thread safety: pure, but for the state.
#pragma once

#include <peal/autograd/core/error.h>

#include <csetjmp>
#include <string_view>

namespace peal::data {

// False where an error jumped over the library's own frames and those of `call`, which therefore
// has nothing that wants to be destroyed.
template <class State, class Call>
[[gnu::noinline]] bool survives(State& state, const Call& call) {
  if (setjmp(state.back) != 0) return false;
  call();
  return true;
}

template <class State>
[[noreturn]] void fail_with_words(const State& state, std::string_view name,
                                  std::string_view format) {
  fail(concat("[data] ", name, ": cannot be read as ", format, ": ", state.words.data(),
              "; copy or download the file again, or leave it out"));
}

}  // namespace peal::data
