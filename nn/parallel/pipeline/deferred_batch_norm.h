// SPDX-License-Identifier: Apache-2.0
// Deferred batch norm (torchgpipe and FairScale: DeferredBatchNorm): batch norm of micro-batches
// whose running statistics are those of the whole mini-batch. They move once, when it has ended, by
// the mean and the variance of all its micro-batches together: as BatchNorm's do where nothing is
// cut. Each micro-batch is normalised by its own statistics all the same, and so are gradients.
//
//   nn::Pipe pipe(group, net, {.micro_batches = 8, .deferred_batch_norm = true});
//
// Of 0, 2 | 4, 6 with momentum 0.1 the running mean becomes 0.3, and the running variance 1.5667,
// as of 0, 2, 4, 6 (FairScale's has 1.4: it divides by n, not by n - 1).
//
// Who has micro-batches without Pipe converts the model, and calls commit_batch_norm() after the
// last of each mini-batch. Thread safety: as of Module.
#pragma once

#include <peal/nn/layers/norm.h>

#include <memory>

namespace peal::nn {

// x [N, C] or [N, C, ...]: in the place of BatchNorm1d, 2d and 3d, with their keys.
class DeferredBatchNorm : public BatchNorm {
 public:
  // Of the same tensors as `other`, which it takes the place of.
  explicit DeferredBatchNorm(const BatchNorm& other);
  Tensor forward(const Tensor& x) override;
  // The mini-batch has ended. Nothing where it had no forward in training.
  void commit();
  // What was gathered is of no mini-batch.
  void drop();

 private:
  struct Pending;  // of the micro-batches so far; copies of a module share it
  Tensor apply(const Tensor& x, const BatchNormOptions& options) override;

  std::shared_ptr<Pending> pending_;
};

// Every BatchNorm1d, 2d and 3d below becomes a DeferredBatchNorm of the same tensors, mode and
// place (by replace_child), and is returned; the module itself, where it is one. Error, and nothing
// is converted, for one that has hooks or is of a class derived from those.
Module convert_deferred_batch_norm(Module module);
// commit() of every one below.
void commit_batch_norm(const Module& module);
// drop() of every one below.
void drop_batch_norm(const Module& module);

}  // namespace peal::nn
