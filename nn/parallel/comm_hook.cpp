// SPDX-License-Identifier: Apache-2.0
#include <peal/nn/parallel/comm_hook.h>

#include <utility>

namespace peal::nn {

std::vector<Tensor> GradBucket::gradients() const {
  std::vector<Tensor> all;
  for (const Tensor& parameter : parameters) all.push_back(parameter.grad());
  return all;
}

CommHook average_gradients(comm::ProcessGroup group) {
  return [group = std::move(group)](GradBucket& bucket) {
    return group.all_reduce(bucket.buffer, comm::ReduceOp::avg, bucket.label);
  };
}

CommHook noop_hook() {
  return [](GradBucket& bucket) {
    bucket.averaged = Averaged::not_at_all;
    return comm::Work();
  };
}

}  // namespace peal::nn
