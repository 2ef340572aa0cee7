// SPDX-License-Identifier: Apache-2.0
// Synchronised batch norm: while training, a channel's mean and variance are those of the batches
// of all ranks together, so that small batches a rank train as one large batch (Zhang et al.,
// "Context encoding for semantic segmentation", 2018, section 2). P ranks are equal to BatchNorm
// over the whole batch on one: outputs, gradients and running statistics, whatever each rank's
// share is.
//
//   nn::ResNet18 net;
//   nn::convert_sync_batchnorm(net, job.group());
//   nn::DistributedDataParallel ddp(net, job.group());
//
// Forward is one all-gather of 2 C + 1 values (a rank's means, variances and number of values a
// channel), which every rank merges in the same order, so running statistics are the same bits on
// all. Backward is one all-reduce of 2 C (the sums that the gradient of x needs). The gradients of
// weight and bias stay the rank's own, for DDP. In evaluation, and on one rank, it is BatchNorm and
// nothing is sent.
//
// A rank without samples calls it too, with x of shape [0, C, ...], and goes through backward; it
// counts for nothing. Under Join (join.h) those that have no batch left do so by themselves, where
// the group is the wrapper's. Whether an input wants a gradient does not matter: a rank takes part
// in backward wherever it took part in forward with gradients on. Statistics are f32, also of f16
// and bf16, and f64 of f64. Where a rank leaves a call out, all get an Error that names the layer.
// What else ranks use of a model may differ (DDPOptions::find_unused_parameters says how far).
// Thread safety: as of Module and of the group.
#pragma once

#include <peal/comm/group/process_group.h>
#include <peal/nn/layers/norm.h>
#include <peal/nn/module.h>
#include <peal/nn/parallel/equal_writes.h>

#include <array>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace peal::nn {

// x [N, C] or [N, C, ...]: in the place of BatchNorm1d, 2d and 3d, with their keys.
class SyncBatchNorm : public BatchNorm {
 public:
  // Of so many channels C, with fresh statistics; every rank of the group makes one.
  SyncBatchNorm(std::int64_t channels, comm::ProcessGroup group,
                const BatchNormSettings& settings = {});
  // Of the same tensors as `other`, which it takes the place of; `path` is for errors and traces.
  SyncBatchNorm(const BatchNorm& other, comm::ProcessGroup group, std::string_view path);
  Tensor forward(const Tensor& x) override;

  // The ranks whose samples are one batch.
  const comm::ProcessGroup& group() const;
  // Its running statistics and, of each, what it has written in training; none where it has none.
  using Tracked = std::pair<Tensor, std::shared_ptr<const EqualWrites>>;
  std::vector<Tracked> tracked() const;

 private:
  struct Meeting;
  Tensor apply(const Tensor& x, const BatchNormOptions& options) override;

  std::shared_ptr<const Meeting> meeting_;
  std::array<std::shared_ptr<EqualWrites>, 3> writes_{std::make_shared<EqualWrites>(),
                                                      std::make_shared<EqualWrites>(),
                                                      std::make_shared<EqualWrites>()};
};

// Every BatchNorm1d, 2d and 3d below becomes a SyncBatchNorm of the same tensors, mode and place
// (by replace_child: handles of the model stand for the new ones), and is returned; the module
// itself, where it is one. The same on all ranks; before or after the model is wrapped in DDP.
// Nothing is sent. Error, and nothing is converted, for one that has hooks or is of a class derived
// from those, whose forward would be lost.
Module convert_sync_batchnorm(Module module, const comm::ProcessGroup& group);

}  // namespace peal::nn
