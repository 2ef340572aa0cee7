// SPDX-License-Identifier: Apache-2.0
// Program: what the nine programs are, each of another operation.
#pragma once

#include <string>
#include <string_view>

namespace peal::bench {

// main() of the program of that operation.
int perf_main(std::string_view operation, int argc, char** argv);

// For a world of one: what to do where a launcher speaks of several ranks, each of which would
// measure itself and print a table; or nothing.
std::string lonely();

}  // namespace peal::bench
