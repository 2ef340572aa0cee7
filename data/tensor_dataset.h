// SPDX-License-Identifier: Apache-2.0
// TensorDataset: tensors whose rows are the samples (torch.utils.data.TensorDataset). A batch is a
// copy of rows. Thread safety: immutable, as long as nobody writes to the tensors.
#pragma once

#include <peal/data/dataset.h>

#include <cstdint>
#include <span>

namespace peal::data {

class TensorDataset : public Dataset {
 public:
  // x, y (may be undefined) and `more` are [N, ...], on the CPU. Errors: other numbers of rows, no
  // dimension, another device.
  explicit TensorDataset(Tensor x, Tensor y = {}, NamedTensors more = {});

  std::int64_t size() const override { return rows_.size(); }
  Batch get(std::span<const std::int64_t> indices) const override;
  // The tensors themselves.
  const Batch& rows() const { return rows_; }

 private:
  Batch rows_;
};

}  // namespace peal::data
