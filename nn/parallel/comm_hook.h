// SPDX-License-Identifier: Apache-2.0
// Communication hook: what makes the gradients of a bucket those of all ranks (PyTorch:
// register_comm_hook). DDP's own averages them; others send less, or something else:
//
//   ddp.register_comm_hook([group](nn::GradBucket& bucket) {
//     mul_(bucket.buffer, 0.5);
//     return group.all_reduce(bucket.buffer, comm::ReduceOp::sum, bucket.label);
//   });
//
// Those that come along: compress_hooks.h (f16, bf16, int8), power_sgd.h, local_sgd.h.
//
// A hook is called for each bucket in the order of the plan, on the thread that runs backward, as
// soon as the bucket's gradients are complete. When the Work that it returns is done, the buffer
// holds, on every rank the same bits, the average over the ranks of what they had, or what stands
// for it. Where samples are counted or ranks have no batch (DistributedDataParallel::backward(loss,
// samples), Join) the reducer divides by those, so a hook that does not average over all ranks says
// what it leaves. Thread safety: as said.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/comm/group/process_group.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace peal::nn {

// What a hook leaves in a bucket: the average over all ranks; over some of them, which goes with
// neither samples nor a divisor of those that have a batch; or this rank's own.
enum class Averaged : std::uint8_t { over_all, over_some, not_at_all };

struct GradBucket {
  std::size_t index = 0;  // in the plan, from 0
  // [count], all of the bucket's gradients and, between them, gaps of zeros.
  Tensor buffer;
  // Whose gradients they are, in order; the gradient of each is a part of the buffer.
  std::vector<Tensor> parameters;
  std::vector<std::string> names;          // of these, as the model has them
  bool is_last = false;                    // of the plan
  Averaged averaged = Averaged::over_all;  // to be said at each call, where it is otherwise
  // Each in the shape of its parameter, a part of the buffer.
  std::vector<Tensor> gradients() const;
  // For the collectives of the bucket: errors name it, and ranks that are in different steps never
  // meet. It holds during the call.
  comm::Label label;
  // Whose bucket it is, during the call.
  std::weak_ptr<const void> wrapper{};
  // During the call: what the average over all ranks is multiplied with when the hook is done, and
  // 1 where neither samples count nor ranks have no batch; for a hook that keeps a part of it for
  // another step. Where samples count the first call of a step is collective, and waits for all.
  std::function<double()> factor{};
  // During the call: parameters of it may turn out unused by all ranks (unused.h), whose gradients
  // are then not what the hook makes of them, but what they were. A hook that keeps something of
  // them sets `taken_back`, which is called for each, by its place, when the step is done.
  bool may_be_unused = false;
  std::function<void(std::size_t place)> taken_back{};
};

// For a hook that keeps something between steps: of the wrapper that calls it first, for as long as
// that lives.
class OneWrapper {
 public:
  // Error for another's bucket: `state` says what is to be made anew for it.
  void check(const GradBucket& bucket, std::string_view state);

 private:
  std::weak_ptr<const void> of_;
};

using CommHook = std::function<comm::Work(GradBucket&)>;

// The average over the ranks, divided once, as one all-reduce.
CommHook average_gradients(comm::ProcessGroup group);
// Sends nothing: each rank keeps its own. To measure what communication costs.
CommHook noop_hook();

}  // namespace peal::nn
