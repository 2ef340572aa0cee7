// SPDX-License-Identifier: Apache-2.0
// Runs: how a reduction goes over a dense tensor. Neighbouring dimensions that are both kept or
// both reduced count as one. Thread safety: a value.
#pragma once

#include <peal/autograd/core/shape.h>

#include <array>
#include <cstdint>

namespace peal::cpu {

struct Runs {
  std::array<std::int64_t, Shape::max_dims> size{}, step{}, out_step{};  // of x, of the result
  std::array<bool, Shape::max_dims> reduced{};
  std::size_t dims = 0;

  Runs(const Shape& shape, std::uint32_t mask) {
    for (int i = 0; i < shape.dim(); ++i) {
      const bool gone = (mask >> i) & 1;
      if (shape[i] == 1) continue;
      if (dims > 0 && reduced[dims - 1] == gone) {
        size[dims - 1] *= shape[i];
      } else {
        size[dims] = shape[i];
        reduced[dims++] = gone;
      }
    }
    std::int64_t x = 1, out = 1;
    for (std::size_t d = dims; d-- > 0;) {
      step[d] = x;
      x *= size[d];
      if (reduced[d]) continue;
      out_step[d] = out;
      out *= size[d];
    }
  }
};

}  // namespace peal::cpu
