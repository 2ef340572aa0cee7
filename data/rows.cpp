// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/rows.h>

#include <cstddef>
#include <cstring>

namespace peal::data {
namespace {

std::size_t bytes_of_row(const Tensor& x) {
  return static_cast<std::size_t>(shape_of_row(x).numel()) * size_of(x.dtype());
}

}  // namespace

void check_index(std::string_view who, std::int64_t index, std::int64_t size) {
  PEAL_CHECK(index >= 0 && index < size, "[data] ", who, ": expected an index from 0 to ", size - 1,
             ", got ", index);
}

Shape shape_of_row(const Tensor& x) {
  return Shape(std::span(x.shape().begin() + 1, x.shape().end()));
}

Tensor room_for(std::int64_t count, const Shape& row, DType dtype) {
  Shape shape{count};
  for (const std::int64_t size : row) shape.push_back(size);
  return Tensor::empty(shape, dtype, Device{});
}

Tensor take_rows(const Tensor& from, std::span<const std::int64_t> rows) {
  const Tensor taken = room_for(std::ssize(rows), shape_of_row(from), from.dtype());
  const std::size_t each = bytes_of_row(from);
  const auto* source = static_cast<const std::byte*>(from.raw());
  auto* to = static_cast<std::byte*>(taken.raw());
  for (const std::int64_t row : rows) {
    if (each > 0) std::memcpy(to, source + static_cast<std::size_t>(row) * each, each);
    to += each;
  }
  return taken;
}

void put_rows(const Tensor& into, std::span<const std::int64_t> at, const Tensor& rows) {
  const std::size_t each = bytes_of_row(into);
  const auto* source = static_cast<const std::byte*>(rows.raw());
  auto* to = static_cast<std::byte*>(into.raw());
  for (const std::int64_t row : at) {
    if (each > 0) std::memcpy(to + static_cast<std::size_t>(row) * each, source, each);
    source += each;
  }
}

}  // namespace peal::data
