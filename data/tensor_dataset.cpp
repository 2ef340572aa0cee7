// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/rows.h>
#include <peal/data/tensor_dataset.h>

#include <string_view>
#include <utility>

namespace peal::data {

TensorDataset::TensorDataset(Tensor x, Tensor y, NamedTensors more)
    : rows_{std::move(x), std::move(y), std::move(more)} {
  PEAL_CHECK(rows_.x.defined() && rows_.x.dim() > 0,
             "[data] tensor set: expected x of a row a sample, got ",
             rows_.x.defined() ? "a tensor without dimensions" : "none");
  const auto check = [&](std::string_view name, const Tensor& tensor) {
    PEAL_CHECK(tensor.device() == Device{}, "[data] tensor set: expected '", name,
               "' on the CPU; batches are moved by the loader (LoaderOptions::device)");
    PEAL_CHECK(tensor.dim() > 0 && tensor.size(0) == size(), "[data] tensor set: expected '", name,
               "' of ", size(), " rows, as x has, got shape ", tensor.shape());
  };
  check("x", rows_.x);
  if (rows_.y.defined()) check("y", rows_.y);
  for (const auto& [name, tensor] : rows_.more) check(name, tensor);
}

Batch TensorDataset::get(std::span<const std::int64_t> indices) const {
  for (const std::int64_t index : indices) check_index("tensor set", index, size());
  Batch batch{take_rows(rows_.x, indices),
              rows_.y.defined() ? take_rows(rows_.y, indices) : Tensor()};
  for (const auto& [name, tensor] : rows_.more) {
    batch.more.emplace_back(name, take_rows(tensor, indices));
  }
  return batch;
}

}  // namespace peal::data
