// SPDX-License-Identifier: Apache-2.0
// A data set: a number of samples, and batches of any of them. Batches are made on the CPU; the
// loader or the training loop moves them. Invariant: get() of the same indices, and augmented() of
// the same indices and draws, give the same bytes, every time and on every thread, so ranks and
// worker threads may share a data set. Thread safety: const methods may be called from several
// threads at once.
#pragma once

#include <peal/data/batch.h>
#include <peal/data/draw.h>

#include <cstdint>
#include <memory>
#include <span>

namespace peal::data {

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  // The samples at `indices`, in this order; repeats are fine. Error: an index outside of
  // 0..size()-1.
  virtual Batch get(std::span<const std::int64_t> indices) const = 0;
  // What the loader asks for: the samples as training shall see them. A set that augments draws for
  // sample i from draws.of(i), and from nothing else.
  virtual Batch augmented(std::span<const std::int64_t> indices, const Draws& draws) const {
    static_cast<void>(draws);
    return get(indices);
  }
};

using DatasetRef = std::shared_ptr<const Dataset>;

}  // namespace peal::data
