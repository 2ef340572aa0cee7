// SPDX-License-Identifier: Apache-2.0
// Dims: over which dimensions an op goes, as sum(x, 1), sum(x, {0, -1}) or a vector has them.
// Negative ones count from the end. Thread safety: a value.
#pragma once

#include <initializer_list>
#include <utility>
#include <vector>

namespace peal {

class Dims {
 public:
  Dims(int dim) : dims_{dim} {}                            // NOLINT: conversions
  Dims(std::initializer_list<int> dims) : dims_(dims) {}   // NOLINT
  Dims(std::vector<int> dims) : dims_(std::move(dims)) {}  // NOLINT
  Dims(bool) = delete;  // sum(x, true) would be along dimension 1

  std::vector<int>::const_iterator begin() const { return dims_.begin(); }
  std::vector<int>::const_iterator end() const { return dims_.end(); }

 private:
  std::vector<int> dims_;
};

}  // namespace peal
