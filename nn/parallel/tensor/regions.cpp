// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/tape.h>
#include <peal/comm/group/in_stream.h>
#include <peal/comm/schedule/mix.h>
#include <peal/nn/parallel/tensor/regions.h>

#include <cstdint>
#include <string>

namespace peal::nn {
namespace {

// The name of a call, which is its own on each way.
struct RegionCall {
  RegionCall(std::string_view name, std::string_view what)
      : text(concat(name.empty() ? "tensor parallel" : name, ", ", what)) {
    for (const char c : text) comm::mix(tag, static_cast<unsigned char>(c));
  }
  comm::Label label() const { return {text, tag}; }

  std::string text;
  std::uint64_t tag = 0;
};

int from_front(const Tensor& x, int dim, std::string_view name) {
  const int found = dim < 0 ? dim + x.dim() : dim;
  PEAL_CHECK(found >= 0 && found < x.dim(), name.empty() ? "tensor parallel" : name,
             ": expected a dimension ", dim, ", got shape ", x.shape());
  return found;
}

std::int64_t share_of(const Tensor& x, int dim, const comm::ProcessGroup& group,
                      std::string_view name) {
  PEAL_CHECK(x.size(dim) % group.world() == 0, name.empty() ? "tensor parallel" : name,
             ": dimension ", dim, " of shape ", x.shape(), " has ", x.size(dim),
             " places, which do not divide among ", group.world(), " ranks");
  return x.size(dim) / group.world();
}

Tensor all_reduced(const Tensor& x, const comm::ProcessGroup& group, const RegionCall& call) {
  const Tensor sum = Tensor::empty(x.shape(), x.dtype(), x.device());
  const comm::InStream stays;
  group.all_reduce(sum.view(), x.detach().view(), comm::ReduceOp::sum, call.label()).wait();
  return sum;
}

Tensor own_part(const Tensor& x, const comm::ProcessGroup& group, int dim, std::string_view name) {
  const std::int64_t share = share_of(x, dim, group, name);
  return narrow(x.detach(), dim, share * group.rank(), share);
}

Tensor reduce_scattered(const Tensor& x, const comm::ProcessGroup& group, int dim,
                        std::string_view name) {
  const std::int64_t share = share_of(x, dim, group, name);
  const RegionCall call(name, "reduce_scatter");
  // By rank: what is of one rank lies together.
  const Tensor by_rank = dim == 0 ? x.detach() : cat(Tensors(split(x.detach(), share, dim)), 0);
  Shape local = x.shape();
  local[dim] = share;
  const Tensor mine = Tensor::empty(local, x.dtype(), x.device());
  const comm::InStream stays;
  group.reduce_scatter(mine.view(), by_rank.view(), comm::ReduceOp::sum, call.label()).wait();
  return mine;
}

}  // namespace

Tensor all_gathered(const Tensor& x, const comm::ProcessGroup& group, int dim,
                    std::string_view name) {
  const RegionCall call(name, "all_gather");
  const auto world = static_cast<std::int64_t>(group.world());
  const Tensor mine = x.detach();
  const Tensor all = Tensor::empty({world * mine.numel()}, x.dtype(), x.device());
  {
    const comm::InStream stays;
    group.all_gather(all.view(), mine.view(), call.label()).wait();
  }
  Tensors parts;
  for (std::int64_t r = 0; r < world; ++r) {
    parts.push_back(all.detach(x.shape(), r * mine.numel()));
  }
  return cat(parts, dim);
}

Tensor copy_to_tensor_parallel_region(const Tensor& x, const comm::ProcessGroup& group,
                                      std::string_view name) {
  if (group.world() == 1) return x;
  return record("copy_to_tensor_parallel_region", x.detach(), {x},
                [group, name = std::string(name)](const Tensor& g) {
                  return reduce_from_tensor_parallel_region(g, group, name);
                });
}

Tensor reduce_from_tensor_parallel_region(const Tensor& x, const comm::ProcessGroup& group,
                                          std::string_view name) {
  if (group.world() == 1) return x;
  return record("reduce_from_tensor_parallel_region",
                all_reduced(x, group, RegionCall(name, "all_reduce")), {x},
                [group, name = std::string(name)](const Tensor& g) {
                  return copy_to_tensor_parallel_region(g, group, name);
                });
}

Tensor scatter_to_tensor_parallel_region(const Tensor& x, const comm::ProcessGroup& group, int dim,
                                         std::string_view name) {
  if (group.world() == 1) return x;
  const int at = from_front(x, dim, name);
  return record("scatter_to_tensor_parallel_region", own_part(x, group, at, name), {x},
                [group, at, name = std::string(name)](const Tensor& g) {
                  return gather_from_tensor_parallel_region(g, group, at, name);
                });
}

Tensor gather_from_tensor_parallel_region(const Tensor& x, const comm::ProcessGroup& group, int dim,
                                          std::string_view name) {
  if (group.world() == 1) return x;
  const int at = from_front(x, dim, name);
  return record("gather_from_tensor_parallel_region", all_gathered(x, group, at, name), {x},
                [group, at, name = std::string(name)](const Tensor& g) {
                  return scatter_to_tensor_parallel_region(g, group, at, name);
                });
}

Tensor all_gather_sequence(const Tensor& x, const comm::ProcessGroup& group, int dim,
                           std::string_view name) {
  if (group.world() == 1) return x;
  const int at = from_front(x, dim, name);
  return record("all_gather_sequence", all_gathered(x, group, at, name), {x},
                [group, at, name = std::string(name)](const Tensor& g) {
                  return reduce_scatter_sequence(g, group, at, name);
                });
}

Tensor reduce_scatter_sequence(const Tensor& x, const comm::ProcessGroup& group, int dim,
                               std::string_view name) {
  if (group.world() == 1) return x;
  const int at = from_front(x, dim, name);
  return record("reduce_scatter_sequence", reduce_scattered(x, group, at, name), {x},
                [group, at, name = std::string(name)](const Tensor& g) {
                  return all_gather_sequence(g, group, at, name);
                });
}

}  // namespace peal::nn
