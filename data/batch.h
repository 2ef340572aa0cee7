// SPDX-License-Identifier: Apache-2.0
// A batch: B samples as tensors with names. Two have names that everybody knows, x and y; what else
// a model takes (masks, lengths, a second input) comes under names of its own.
//
//   for (const auto& [images, classes] : loader) ...       // x and y
//   for (const data::Batch& batch : loader) model(batch.x, batch["mask"]) ...
#pragma once

#include <peal/autograd/core/safetensors.h>
#include <peal/autograd/core/tensor.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>

namespace peal::data {

// x [B, ...] is what the model sees, y [B] (i64 classes) or [B, ...] what it should say; the others
// are [B, ...] as well. y may be undefined.
struct Batch {
  Tensor x, y;
  NamedTensors more = {};

  // "x", "y", or one of the others. Error that says which names there are.
  const Tensor& operator[](std::string_view name) const;
  std::int64_t size() const { return x.size(0); }
  // All of them on the device (Tensor::to).
  Batch to(Device device, bool non_blocking = false) const;
};

// As a pair of x and y, for structured bindings.
template <std::size_t I>
Tensor& get(Batch& batch) {
  return I == 0 ? batch.x : batch.y;
}
template <std::size_t I>
const Tensor& get(const Batch& batch) {
  return I == 0 ? batch.x : batch.y;
}

}  // namespace peal::data

template <>
struct std::tuple_size<peal::data::Batch> : std::integral_constant<std::size_t, 2> {};
template <std::size_t I>
struct std::tuple_element<I, peal::data::Batch> {
  using type = peal::Tensor;
};
