// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/tape.h>
#include <peal/nn/parallel/even_share.h>
#include <peal/nn/parallel/functional_collectives.h>
#include <peal/nn/parallel/tensor/regions.h>

#include <cstdint>
#include <string>

namespace peal::nn {
namespace {

// For errors and traces, where nobody says whose the call is.
std::string_view region_name(std::string_view name) {
  return name.empty() ? "tensor parallel" : name;
}

Tensor own_part(const Tensor& x, const comm::ProcessGroup& group, int dim, std::string_view name) {
  const std::int64_t share = even_share(x, dim, group, region_name(name));
  return as_result(narrow(x.detach(), dim, share * group.rank(), share));
}

}  // namespace

Tensor all_gathered(const Tensor& x, const comm::ProcessGroup& group, int dim,
                    std::string_view name) {
  const Tensor all = all_gather(x.detach(), group, dim, region_name(name));
  return group.world() == 1 ? all.clone() : all;
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
                all_reduce(x.detach(), group, comm::ReduceOp::sum, region_name(name)), {x},
                [group, name = std::string(name)](const Tensor& g) {
                  return copy_to_tensor_parallel_region(g, group, name);
                });
}

Tensor scatter_to_tensor_parallel_region(const Tensor& x, const comm::ProcessGroup& group, int dim,
                                         std::string_view name) {
  if (group.world() == 1) return x;
  const int at = dim_from_front(x, dim, region_name(name));
  return record("scatter_to_tensor_parallel_region", own_part(x, group, at, name), {x},
                [group, at, name = std::string(name)](const Tensor& g) {
                  return gather_from_tensor_parallel_region(g, group, at, name);
                });
}

Tensor gather_from_tensor_parallel_region(const Tensor& x, const comm::ProcessGroup& group, int dim,
                                          std::string_view name) {
  if (group.world() == 1) return x;
  const int at = dim_from_front(x, dim, region_name(name));
  return record("gather_from_tensor_parallel_region", all_gathered(x, group, at, name), {x},
                [group, at, name = std::string(name)](const Tensor& g) {
                  return scatter_to_tensor_parallel_region(g, group, at, name);
                });
}

Tensor all_gather_sequence(const Tensor& x, const comm::ProcessGroup& group, int dim,
                           std::string_view name) {
  return all_gather(x, group, dim, region_name(name));
}

Tensor reduce_scatter_sequence(const Tensor& x, const comm::ProcessGroup& group, int dim,
                               std::string_view name) {
  return reduce_scatter(x, group, dim, region_name(name));
}

}  // namespace peal::nn
