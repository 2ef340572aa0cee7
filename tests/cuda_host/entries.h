// SPDX-License-Identifier: Apache-2.0
// The entries of CUDA's table of kernels by name, and which of them may still be empty. The tests
// register the table with the empty ones filled by a function that throws MissingEntry, so that an
// op that lacks a kernel is told apart from one that is wrong. Thread safety: constants.
#pragma once

#include <peal/autograd/kernels/table.h>

#include <string>
#include <vector>

namespace peal::test {

struct MissingEntry {
  std::string name;
};

const Kernels& table_with_gaps_named();

// Empty entries of CUDA's table.
const std::vector<std::string>& missing_entries();

// Whoever fills an entry takes its name out; a test holds the list.
inline const std::vector<std::string> may_be_missing = {};

}  // namespace peal::test
