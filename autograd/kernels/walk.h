// SPDX-License-Identifier: Apache-2.0
// Walk: goes over a dense result in rows, while N operands are read with steps of their own (0
// where stretched). Dimensions that all operands traverse alike are merged, so that the last one,
// the row, is as long as it can be. Thread safety: a value.
#pragma once

#include <peal/autograd/core/shape.h>
#include <peal/autograd/kernels/table.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace peal::cpu {

// How `from` is read to fill `to`, which it broadcasts to: 0 where stretched.
inline Steps steps_of(const Shape& from, const Shape& to) {
  Steps steps{};
  std::int64_t step = 1;
  for (int i = from.dim() - 1, j = to.dim() - 1; i >= 0; --i, --j) {
    if (from[i] != 1) steps[static_cast<std::size_t>(j)] = step;
    step *= from[i];
  }
  return steps;
}

template <std::size_t N>
class Walk {
 public:
  using Places = std::array<std::int64_t, N>;  // an element of each operand

  Walk(const Shape& to, const std::array<Steps, N>& steps) {
    for (int i = 0; i < to.dim(); ++i) {
      const auto d = static_cast<std::size_t>(i);
      if (to[i] == 1) continue;
      bool alike = dims_ > 0;
      for (std::size_t k = 0; alike && k < N; ++k) {
        alike = steps_[k][dims_ - 1] == steps[k][d] * to[i];
      }
      if (!alike) size_[dims_++] = 1;
      size_[dims_ - 1] *= to[i];
      for (std::size_t k = 0; k < N; ++k) steps_[k][dims_ - 1] = steps[k][d];
    }
    if (dims_ == 0) size_[dims_++] = 1;  // one element: steps of 0
  }

  // Dimensions after merging, at least one.
  std::size_t dims() const { return dims_; }
  std::int64_t size(std::size_t d) const { return size_[d]; }
  std::int64_t step(std::size_t operand, std::size_t d) const { return steps_[operand][d]; }
  std::int64_t row() const { return size_[dims_ - 1]; }
  std::int64_t row_step(std::size_t operand) const { return steps_[operand][dims_ - 1]; }
  std::int64_t rows() const {
    std::int64_t product = 1;
    for (std::size_t d = 0; d + 1 < dims_; ++d) product *= size_[d];
    return product;
  }
  // Calls f(row, places of its first elements) for the rows [begin, end).
  template <class F>
  void each_row(std::int64_t begin, std::int64_t end, F&& f) const {
    if (dims_ == 1) {
      for (std::int64_t row = begin; row < end; ++row) f(row, Places{});
      return;
    }
    // Counted up: to divide for each row takes longer than many a row does.
    Steps place{};
    Places at{}, step{};
    std::int64_t rest = begin;
    for (std::size_t d = dims_ - 1; d-- > 0;) {
      place[d] = rest % size_[d];
      rest /= size_[d];
      for (std::size_t k = 0; k < N; ++k) at[k] += place[d] * steps_[k][d];
    }
    const std::size_t last = dims_ - 2;
    for (std::size_t k = 0; k < N; ++k) step[k] = steps_[k][last];
    for (std::int64_t row = begin; row < end;) {
      const std::int64_t stop = std::min(end, row + size_[last] - place[last]);
      place[last] = size_[last];
      for (; row < stop; ++row) {
        f(row, at);
        for (std::size_t k = 0; k < N; ++k) at[k] += step[k];
      }
      for (std::size_t d = last; d > 0 && place[d] == size_[d]; --d) {
        place[d] = 0;
        ++place[d - 1];
        for (std::size_t k = 0; k < N; ++k) at[k] += steps_[k][d - 1] - size_[d] * steps_[k][d];
      }
    }
  }

 private:
  Steps size_{};
  std::array<Steps, N> steps_{};
  std::size_t dims_ = 0;
};

}  // namespace peal::cpu
