// SPDX-License-Identifier: Apache-2.0
// Kernel table of combine(): what each vector level brings, by type and reduction. Plain pointers
// and sizes, since no inline function of the standard library may be compiled with a level's
// instructions. Thread safety: tables are constant.
#pragma once

#include <cstddef>
#include <cstdint>

namespace peal::comm {

struct CombineKernels {
  // As combine(), in bytes; so many arguments as go in registers.
  using Kernel = void (*)(std::byte* const* targets, std::int64_t target_count,
                          const std::byte* const* sources, std::int64_t source_count,
                          std::int64_t bytes, bool streaming);
  // Of sums, which are multiplied or divided before they are stored.
  using Average = void (*)(std::byte* const* targets, std::int64_t target_count,
                           const std::byte* const* sources, std::int64_t source_count,
                           std::int64_t bytes, bool streaming, double by);
  Kernel of[9][9] = {};  // by DType and ReduceOp; null where the type does not have the op
  Average multiplied[9] = {}, divided[9] = {};  // by DType; null but for floating ones
  Kernel copy = nullptr;
  std::int64_t size[9] = {};  // of an element
};

}  // namespace peal::comm
