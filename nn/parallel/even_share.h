// SPDX-License-Identifier: Apache-2.0
// Even shares: a dimension of a tensor that the ranks of a group share, as many places each.
// Thread safety: pure functions.
#pragma once

#include <peal/autograd/core/error.h>
#include <peal/autograd/core/tensor.h>
#include <peal/comm/group/process_group.h>

#include <cstdint>
#include <string_view>

namespace peal::nn {

// Counted from the front. Error, which begins with `who`, for one that x does not have.
inline int dim_from_front(const Tensor& x, int dim, std::string_view who) {
  const int found = dim < 0 ? dim + x.dim() : dim;
  PEAL_CHECK(found >= 0 && found < x.dim(), who, ": expected a dimension ", dim, ", got shape ",
             x.shape());
  return found;
}

// How many places a rank has. REQUIRES: 0 <= dim < x.dim(). Error, which begins with `who`, where
// they do not divide.
inline std::int64_t even_share(const Tensor& x, int dim, const comm::ProcessGroup& group,
                               std::string_view who) {
  PEAL_CHECK(x.size(dim) % group.world() == 0, who, ": dimension ", dim, " of shape ", x.shape(),
             " has ", x.size(dim), " places, which do not divide among ", group.world(), " ranks");
  return x.size(dim) / group.world();
}

}  // namespace peal::nn
