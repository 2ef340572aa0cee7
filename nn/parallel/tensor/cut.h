// SPDX-License-Identifier: Apache-2.0
// Cuts: how a parameter lies over the ranks of a tensor-parallel group (PyTorch: DTensor's
// Shard(dim)). A value: the shape that the parameter has as a whole, and along which dimension each
// rank has an equal part of it. Several parts side by side (queries, keys and values of one linear
// layer) are each cut, so that a rank has a share of all of them. Thread safety: values.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/comm/group/process_group.h>

#include <cstdint>
#include <string_view>

namespace peal::nn {

struct Cut {
  Shape whole;
  int dim = 0;
  std::int64_t parts = 1;

  bool operator==(const Cut&) const = default;
};

// What a rank has of it. Error, which names `who`, where it is not equal among them.
Shape local_shape(const Cut& cut, int world, std::string_view who);
// This rank's part of a whole tensor, in memory of its own. REQUIRES: it has the cut's shape.
Tensor part_of(const Tensor& whole, const Cut& cut, int rank, int world);
// The whole, of the cut's shape, of all ranks' parts. Collective.
Tensor whole_of(const Tensor& mine, const Cut& cut, const comm::ProcessGroup& group,
                std::string_view name);

}  // namespace peal::nn
