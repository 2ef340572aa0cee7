// SPDX-License-Identifier: Apache-2.0
// SampleSet: a data set that says what one sample is, as a class with __getitem__ and __len__ does
// in PyTorch; batches are made of samples by a Collate.
//
//   struct Squares : data::SampleSet {
//     std::int64_t size() const override { return 100; }
//     data::Sample sample(std::int64_t i, data::Draw&) const override {
//       const auto x = static_cast<float>(i);
//       return {Tensor::scalar(x), Tensor::scalar(x * x)};
//     }
//   };
//   data::DataLoader loader(std::make_shared<Squares>(), {.batch_size = 8, .workers = 2});
//
// Where a set is large and a sample small, a Dataset that makes whole batches (dataset.h) is
// faster: a tensor costs about a hundred nanoseconds. Thread safety: sample() is called by several
// threads at once.
#pragma once

#include <peal/data/collate.h>
#include <peal/data/dataset.h>

#include <cstdint>
#include <span>
#include <utility>

namespace peal::data {

class SampleSet : public Dataset {
 public:
  explicit SampleSet(Collate together = data::collate) : together_(std::move(together)) {}

  // Sample `index`, from 0 to size()-1; whatever chance there is comes from `draw` alone.
  virtual Sample sample(std::int64_t index, Draw& draw) const = 0;

  // As in epoch 0 of seed 0.
  Batch get(std::span<const std::int64_t> indices) const override {
    return augmented(indices, Draws{});
  }
  // Errors: an index outside of the set, what sample() and the Collate throw.
  Batch augmented(std::span<const std::int64_t> indices, const Draws& draws) const override;

 private:
  Collate together_;
};

}  // namespace peal::data
