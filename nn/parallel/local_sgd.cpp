// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/nn/parallel/local_sgd.h>

#include <memory>
#include <utility>

namespace peal::nn {

CommHook post_localSGD_hook(comm::ProcessGroup group, comm::ProcessGroup subgroup,
                            const PostLocalSGDOptions& options) {
  return [group = std::move(group), subgroup = std::move(subgroup), options,
          steps = std::make_shared<std::int64_t>(0)](GradBucket& bucket) {
    const bool all = *steps < options.start_localSGD_iter;
    if (bucket.last) ++*steps;
    if (all) return group.all_reduce(bucket.memory, comm::ReduceOp::avg, bucket.label);
    if (!subgroup || !options.post_local_gradient_allreduce) return comm::Work();
    return subgroup.all_reduce(bucket.memory, comm::ReduceOp::avg, bucket.label);
  };
}

PeriodicModelAverager::PeriodicModelAverager(comm::ProcessGroup group,
                                             const PeriodicModelAveragerOptions& options)
    : group_(std::move(group)), options_(options) {
  PEAL_CHECK(options_.period > 0 && options_.warmup_steps >= 0,
             "PeriodicModelAverager: expected a period of 1 or more and warmup_steps of 0 or more, "
             "got ",
             options_.period, " and ", options_.warmup_steps);
}

void PeriodicModelAverager::average_parameters(const std::vector<Tensor>& parameters) {
  const std::int64_t after = step_++ - options_.warmup_steps;
  if (after < 0 || after % options_.period != 0) return;
  std::vector<View> list;
  for (const Tensor& parameter : parameters) list.push_back(parameter.detach());
  if (!list.empty()) {
    group_.all_reduce_coalesced(list, comm::ReduceOp::avg, "parameters of local SGD").wait();
  }
}

}  // namespace peal::nn
