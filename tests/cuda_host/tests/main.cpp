// SPDX-License-Identifier: Apache-2.0
// The main of tests with simulated devices. doctest's handlers of signals would hide the
// simulator's report of a fault.
#define DOCTEST_CONFIG_IMPLEMENT
#define DOCTEST_CONFIG_NO_POSIX_SIGNALS
#include <doctest/doctest.h>

int main(int argc, char** argv) { return doctest::Context(argc, argv).run(); }
