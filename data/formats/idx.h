// SPDX-License-Identifier: Apache-2.0
// IDX, the file format of MNIST and its kin: two zero bytes, a byte for the element type, a byte
// for the number of dimensions, each dimension as a big-endian 32-bit number, then the elements,
// row-major. (Y. LeCun, C. Cortes, C. Burges, "The MNIST database", section "The IDX file format".)
//
// Both functions take gzip or plain content, told apart by the content. Only unsigned bytes are
// read, the one type that data sets in this format use; another type is an error that names it.
// Thread safety: free functions without state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace peal::data {

// An array of bytes, row-major; the product of dims is the number of elements.
struct Idx {
  std::vector<std::int64_t> dims;
  std::vector<std::uint8_t> elements;
};

// Errors name the file, what was expected and what came: not there, not IDX, another element type,
// another number of dimensions than `rank`, too few elements (truncated), too many.
Idx read_idx(const std::filesystem::path& path, int rank);

// The same from memory; `name` stands for the file in errors.
Idx parse_idx(std::span<const std::uint8_t> content, std::string_view name, int rank);

}  // namespace peal::data
