// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/permute.h>
#include <peal/nn/parallel/tensor/cut.h>
#include <peal/nn/parallel/tensor/regions.h>

namespace peal::nn {

Shape local_shape(const Cut& cut, int world, std::string_view who) {
  const std::int64_t size = cut.whole[cut.dim];
  PEAL_CHECK(cut.parts > 0 && size % (cut.parts * world) == 0, who, ": ", size,
             cut.dim == 0 ? " rows" : " columns", " of a weight ", cut.whole,
             cut.parts == 1 ? "" : concat(", in ", cut.parts, " parts,"), " do not divide among ",
             world, " tensor-parallel ranks; choose a size that they divide, or fewer ranks");
  Shape local = cut.whole;
  local[cut.dim] = size / world;
  return local;
}

Tensor part_of(const Tensor& whole, const Cut& cut, int rank, int world) {
  const NoGrad guard;
  const std::int64_t part = cut.whole[cut.dim] / cut.parts, share = part / world;
  Tensors mine;
  for (std::int64_t p = 0; p < cut.parts; ++p) {
    mine.push_back(narrow(whole.detach(), cut.dim, p * part + rank * share, share));
  }
  return cat(mine, cut.dim);
}

Tensor whole_of(const Tensor& mine, const Cut& cut, const comm::ProcessGroup& group,
                std::string_view name) {
  const NoGrad guard;
  const Tensor by_rank = all_gathered(mine, group, cut.dim, name);
  if (cut.parts == 1) return by_rank;
  const std::int64_t share = cut.whole[cut.dim] / cut.parts / group.world();
  Tensors ordered;  // rank by rank, part by part -> part by part, rank by rank
  for (std::int64_t p = 0; p < cut.parts; ++p) {
    for (std::int64_t r = 0; r < group.world(); ++r) {
      ordered.push_back(narrow(by_rank, cut.dim, (r * cut.parts + p) * share, share));
    }
  }
  return cat(ordered, cut.dim);
}

}  // namespace peal::nn
