// SPDX-License-Identifier: Apache-2.0
// Lazy plans: an order of samples or the batches of an epoch, as a number of entries of which each
// is made by itself when somebody asks for it. So an epoch of a billion samples begins, or is taken
// up anywhere, without the rest of it being made. A vector is a plan, too.
// Thread safety: a value; its entries are asked for by several threads at once, so what computes
// them is a pure function.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

namespace peal::data {

template <class T>
class Planned {
 public:
  using At = std::function<T(std::int64_t k)>;

  Planned() = default;
  Planned(std::vector<T> entries)  // NOLINT: where a plan is asked for, a list of it will do
      : size_(std::ssize(entries)),
        at_([all = std::make_shared<const std::vector<T>>(std::move(entries))](std::int64_t k) {
          return (*all)[static_cast<std::size_t>(k)];
        }) {}
  Planned(std::int64_t size, At at) : size_(size), at_(std::move(at)) {}

  std::int64_t size() const { return size_; }
  // REQUIRES: 0 <= k < size().
  T operator[](std::int64_t k) const { return at_(k); }
  std::vector<T> to_vector() const {
    std::vector<T> all;
    all.reserve(static_cast<std::size_t>(size_));
    for (std::int64_t k = 0; k < size_; ++k) all.push_back(at_(k));
    return all;
  }

 private:
  std::int64_t size_ = 0;
  At at_;
};

// Samples, in order.
using Order = Planned<std::int64_t>;

}  // namespace peal::data
