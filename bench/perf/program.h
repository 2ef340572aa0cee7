// SPDX-License-Identifier: Apache-2.0
// Program: the sweep over types, reductions, roots and sizes that the nine programs are, each of
// another operation.
#pragma once

#include <string_view>

namespace peal::bench {

// main() of the program of that operation.
int perf_main(std::string_view operation, int argc, char** argv);

}  // namespace peal::bench
