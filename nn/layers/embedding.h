// SPDX-License-Identifier: Apache-2.0
// Embedding: a row of a table for each index. Thread safety: as of Module.
#pragma once

#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/index.h>
#include <peal/nn/module.h>

namespace peal::nn {

class Embedding : public Module {
 public:
  // weight [count, width], normal with mean 0 and deviation 1.
  Embedding(std::int64_t count, std::int64_t width) {
    PEAL_CHECK(count > 0 && width > 0, "Embedding: sizes must be positive, got ", count, " and ",
               width);
    weight = add_parameter("weight", randn({count, width}));
  }

  // index [...] of i64 -> [..., width].
  Tensor forward(const Tensor& index) override { return embedding(index, weight); }

  Tensor weight;
};

}  // namespace peal::nn
