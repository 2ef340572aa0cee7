// SPDX-License-Identifier: Apache-2.0
// A sum over the ranks of a group whose every element is known.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/comm/group/process_group.h>

#include <cstdint>

#include <doctest/doctest.h>

namespace peal::testing {

// Small integers, so that it is exact.
inline void check_sum(const comm::ProcessGroup& group, const Tensor& data) {
  const auto world = static_cast<float>(group.world());
  for (std::int64_t i = 0; i < data.numel(); ++i) {
    data.data<float>()[i] = static_cast<float>(i % 89 + group.rank());
  }
  group.all_reduce(data).wait();
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < data.numel(); ++i) {
    wrong += data.data<float>()[i] != world * static_cast<float>(i % 89) + world * (world - 1) / 2;
  }
  CHECK(wrong == 0);
}

}  // namespace peal::testing
