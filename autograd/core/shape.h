// SPDX-License-Identifier: Apache-2.0
// Shape: the sizes of a dense row-major tensor, at most eight dimensions, held inline (no
// allocation). A rank-0 shape is a scalar of one element. Thread safety: a value.
#pragma once

#include <peal/autograd/core/error.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string_view>

namespace peal {

class Shape {
 public:
  static constexpr int max_dims = 8;
  static constexpr std::int64_t most_elements = std::int64_t{1} << 59;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes)
      : Shape(std::span(sizes.begin(), sizes.size())) {}
  explicit Shape(std::span<const std::int64_t> sizes) {
    for (std::int64_t size : sizes) push_back(size);
  }

  int dim() const { return dim_; }
  // Sizes count from the end where i is negative, as in PyTorch.
  std::int64_t operator[](int i) const { return sizes_[index(i)]; }
  std::int64_t& operator[](int i) { return sizes_[index(i)]; }
  // Error past 2^59 elements: sizes in bytes would not fit.
  std::int64_t numel() const {
    std::int64_t product = 1;
    for (std::int64_t size : *this) {
      PEAL_CHECK(!__builtin_mul_overflow(product, size, &product) && product <= most_elements,
                 "shape: more elements than memory can hold");
    }
    return product;
  }
  void push_back(std::int64_t size) {
    PEAL_CHECK(dim_ < max_dims, "shape: at most ", max_dims, " dimensions");
    PEAL_CHECK(size >= 0, "shape: a size must not be negative, got ", size);
    sizes_[static_cast<std::size_t>(dim_++)] = size;
  }

  const std::int64_t* begin() const { return sizes_.data(); }
  const std::int64_t* end() const { return sizes_.data() + dim_; }
  bool operator==(const Shape& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }

 private:
  std::size_t index(int i) const {
    const int at = i < 0 ? i + dim_ : i;
    PEAL_CHECK(at >= 0 && at < dim_, "shape: dimension ", i, " of a tensor of ", dim_,
               " dimensions");
    return static_cast<std::size_t>(at);
  }

  std::array<std::int64_t, max_dims> sizes_{};
  int dim_ = 0;
};

std::ostream& operator<<(std::ostream& out, const Shape& shape);  // as fmt: "[2, 3]"

}  // namespace peal

template <>
struct fmt::formatter<peal::Shape> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  template <class Context>
  auto format(const peal::Shape& shape, Context& context) const {
    auto out = fmt::format_to(context.out(), "[");
    for (int i = 0; i < shape.dim(); ++i) {
      out = fmt::format_to(out, "{}{}", i == 0 ? "" : ", ", shape[i]);
    }
    return fmt::format_to(out, "]");
  }
};
