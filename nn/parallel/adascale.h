// SPDX-License-Identifier: Apache-2.0
// AdaScale SGD (Johnson, Agrawal, Gu and Guestrin, "AdaScale SGD: a user-friendly algorithm for
// distributed training", ICML 2020): a batch S times as large is worth more than one step of the
// small one, and fewer than S. How many is the gain, which comes from how far the gradients of the
// parts of the batch differ; each step multiplies the learning rates by it, and a run counts by
// gains how far it is.
//
//   nn::SGD sgd(ddp.parameters(), {.lr = 0.1, .momentum = 0.9});
//   nn::AdaScale optimizer(sgd, group);
//   for (double done = 0; done < steps_of_the_small_batch; done += optimizer.gain()) {
//     optimizer.zero_grad();
//     loss(ddp(x), y).backward();
//     optimizer.step();   // with lr * gain()
//   }
//
// With n parts (ranks times gradients that are accumulated), gradients g_i, their mean m, and the
// scale S:
//   var = sum |g_i|^2 (S / n) / (n - 1) - |m|^2 S / (n - 1),   sqr = |m|^2 - var / S,
//   gain = (var + sqr) / (var / S + sqr),   from 1 to S,
// where var is at least 1e-6 and sqr 0. Both are smoothed over steps by an average whose first
// values count as much as later ones. Each group of the optimizer has a gain of its own. A step
// whose gradients are not finite changes no average.
//
// The optimizer's gradients must be means over all parts when it steps: under
// DistributedDataParallel, with losses that are means over batches of one size
// (backward(loss, samples) multiplies them, and so does a GradScaler: not with these). Where layers
// are recomputed in backward gradients come in several parts, which step() refuses. Names are
// FairScale's. Thread safety: as of the optimizer.
#pragma once

#include <peal/autograd/core/safetensors.h>
#include <peal/comm/group/process_group.h>
#include <peal/nn/optim/optimizer.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace peal::nn {

struct AdaScaleOptions {
  std::int64_t num_gradients_to_accumulate = 1;  // backwards of a step, on each rank
  // The batch as a multiple of the one that the learning rate is for. 0: as many as there are
  // parts.
  double scale = 0;
  // What the average keeps of its past, 0 to below 1. Without it: 1 - parts / 1000, or 0.
  std::optional<double> smoothing{};
  // The loss of each backward is divided by num_gradients_to_accumulate, so that gradients are
  // means when the optimizer steps. False: they are sums over what is accumulated, and step() makes
  // means of them.
  bool is_scaled_loss = true;
};

class AdaScale {
 public:
  // The optimizer is to live as long. `group`: the ranks whose gradients are averaged; empty: this
  // one alone. Errors: one part alone, options that make no sense, pieces of sharded parameters.
  AdaScale(Optimizer& optimizer, comm::ProcessGroup group, const AdaScaleOptions& options = {});
  ~AdaScale();
  AdaScale(const AdaScale&) = delete;
  AdaScale& operator=(const AdaScale&) = delete;

  // Collective. Errors, on all ranks: in the first one where their options or states differ; a rank
  // had fewer or more gradients of a parameter than num_gradients_to_accumulate (none at all is
  // right: the parameter was not used, or is frozen).
  void step();
  // As the optimizer's, and forgets the batches of a step that was begun.
  void zero_grad();

  // The gain, a factor from 1 to scale(), of the last step, over all parameters, and of one group;
  // 1 before the first. Error for a group that there is not. Then the scale S, and of how many
  // parts a step is.
  double gain() const;
  double gain(std::size_t group) const;
  double scale() const { return scale_; }
  std::int64_t parts() const;

  // By group, "var", "sqr" (f64, sums so far) and their "weight". They are of the batch that the
  // learning rate is for, so they go on at any number of ranks; the scale is that of the options.
  NamedTensors state_dict() const;
  void load_state_dict(const NamedTensors& state);

 private:
  struct Seen {  // of the gradients of a parameter since the last step
    double squares = 0;
    std::int64_t count = 0;
  };
  struct Average {
    double var = 0, sqr = 0, weight = 0;
  };
  void agree();
  double gain_of(double var, double sqr) const;
  std::vector<double> measure();  // by group: sum |g_i|^2 of all ranks
  std::vector<Tensor> gradients(std::size_t group) const;
  void take(std::size_t group, double squares);

  Optimizer& optimizer_;
  comm::ProcessGroup group_;
  AdaScaleOptions options_;
  double scale_;
  bool agreed_ = false;
  std::vector<std::size_t> group_of_;  // by parameter
  std::vector<std::uint64_t> hooks_;
  std::shared_ptr<std::vector<Seen>> seen_;
  std::vector<Average> averages_;
};

}  // namespace peal::nn
