// SPDX-License-Identifier: Apache-2.0
// Words of a failure: what an exception of any type says, for a message to those whom it did not
// reach: another rank, a log, an Error around it.
//
// Thread safety: a free function without state.
#pragma once

#include <string>

namespace peal {

// Of the exception that is being handled: what() of a std::exception; of any other, that it is
// none. Called in a catch block: elsewhere the program ends, as by any `throw;` without one.
std::string words_of_failure();

}  // namespace peal
