// SPDX-License-Identifier: Apache-2.0
// A data set: a number of samples, and batches of any of them. Batches are made on the CPU;
// `to(device)` is the training loop's. Invariant: get() of the same indices gives the same bytes,
// every time and on every thread, so ranks and worker threads may share a data set. Thread safety:
// const methods may be called from several threads at once.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>
#include <memory>
#include <span>

namespace peal::data {

// B samples: x [B, ...] is what the model sees, y [B] (i64 classes) or [B, ...] what it should say.
struct Batch {
  Tensor x, y;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  // The samples at `indices`, in this order; repeats are fine. Error: an index outside of
  // 0..size()-1.
  virtual Batch get(std::span<const std::int64_t> indices) const = 0;
};

using DatasetRef = std::shared_ptr<const Dataset>;

}  // namespace peal::data
