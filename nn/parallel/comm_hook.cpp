// SPDX-License-Identifier: Apache-2.0
#include <peal/nn/parallel/comm_hook.h>

#include <utility>

namespace peal::nn {

CommHook average_gradients(comm::ProcessGroup group) {
  return [group = std::move(group)](GradBucket& bucket) {
    return group.all_reduce(bucket.memory, comm::ReduceOp::avg, bucket.label);
  };
}

}  // namespace peal::nn
