// SPDX-License-Identifier: Apache-2.0
// View: a run of elements inside a storage, and all that comm/ sees of a tensor. It holds its
// storage, so an operation in flight keeps its memory alive. Thread safety: a value.
#pragma once

#include <peal/autograd/core/dtype.h>
#include <peal/autograd/core/storage.h>

#include <cstdint>

namespace peal {

struct View {
  StorageRef storage{};
  std::int64_t at = 0;     // first element, in elements of dtype
  std::int64_t count = 0;  // elements
  DType dtype = DType::f32;

  std::byte* data() const {
    return storage ? storage->data() + at * static_cast<std::int64_t>(size_of(dtype)) : nullptr;
  }
  std::size_t bytes() const { return static_cast<std::size_t>(count) * size_of(dtype); }
  Device device() const { return storage ? storage->device() : Device{}; }
  // The elements [first, first + n) of this view.
  View part(std::int64_t first, std::int64_t n) const {
    PEAL_CHECK(first >= 0 && n >= 0 && first + n <= count, "view: elements [", first, ", ",
               first + n, ") of a view of ", count);
    return {storage, at + first, n, dtype};
  }
};

}  // namespace peal
