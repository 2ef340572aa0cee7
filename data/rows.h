// SPDX-License-Identifier: Apache-2.0
// Rows of tensors, moved as bytes: data/ computes with no op. Thread safety: pure functions but for
// what they write.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>
#include <span>
#include <string_view>

namespace peal::data {

// Error that names `who`, for an index outside of 0..size-1.
void check_index(std::string_view who, std::int64_t index, std::int64_t size);

// Rows of `from` [N, ...], on the CPU, as a new tensor [rows.size(), ...]. REQUIRES: 0 <= row < N.
Tensor take_rows(const Tensor& from, std::span<const std::int64_t> rows);

// Row i of `rows` becomes row at[i] of `into`. REQUIRES: one type, sizes that fit, on the CPU.
void put_rows(const Tensor& into, std::span<const std::int64_t> at, const Tensor& rows);

// An uninitialised tensor [count, ...] for rows of this shape, of this type.
Tensor room_for(std::int64_t count, const Shape& row, DType dtype);
// The shape of a row: all dimensions but the first.
Shape shape_of_row(const Tensor& x);

}  // namespace peal::data
