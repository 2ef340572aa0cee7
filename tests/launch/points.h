// SPDX-License-Identifier: Apache-2.0
// A small data set for tests of training.
#pragma once

#include <peal/data/dataset.h>

#include <cstdint>
#include <span>
#include <vector>

namespace peal::testing {

// Points on a plane in three classes, which a random layer guesses now and then.
struct Points : data::Dataset {
  explicit Points(std::int64_t n) : count(n) {}
  std::int64_t size() const override { return count; }
  data::Batch get(std::span<const std::int64_t> indices) const override {
    std::vector<float> x;
    std::vector<std::int64_t> y;
    for (const std::int64_t index : indices) {
      x.push_back(static_cast<float>(index % 7 - 3));
      x.push_back(static_cast<float>(index % 5 - 2));
      y.push_back(index % 3);
    }
    const auto n = std::ssize(indices);
    return {Tensor::from(x, {n, 2}, Device{}), Tensor::from(y, {n}, Device{})};
  }
  std::int64_t count;
};

}  // namespace peal::testing
