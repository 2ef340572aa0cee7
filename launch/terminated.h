// SPDX-License-Identifier: Apache-2.0
// Terminated: what a program that was asked to end leaves by, once it has kept what it should
// (Lightning's SIGTERMException). All ranks throw it at one place, so that none waits for another;
// run_main() ends the program then as if it were done, with the exit status of that signal. Thread
// safety: a value.
#pragma once

#include <peal/autograd/core/error.h>

#include <string>

namespace peal::launch {

class Terminated : public Error {
 public:
  Terminated(int signal, const std::string& message) : Error(message), signal(signal) {}
  const int signal;
};

}  // namespace peal::launch
