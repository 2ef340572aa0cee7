// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/nn/parallel/comm_hook.h>

#include <utility>

namespace peal::nn {

std::vector<Tensor> GradBucket::gradients() const {
  std::vector<Tensor> all;
  for (const Tensor& parameter : parameters) all.push_back(parameter.grad());
  return all;
}

void OneWrapper::check(const GradBucket& bucket, std::string_view state) {
  if (of_.expired()) of_ = bucket.wrapper;
  PEAL_CHECK(of_.lock() == bucket.wrapper.lock(), "[ddp] ", bucket.label.text, ": ", state,
             " is kept for one wrapper, and another one calls its hook too, by which each would "
             "overwrite what it keeps of the other; make a ",
             state, " for each wrapper");
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
