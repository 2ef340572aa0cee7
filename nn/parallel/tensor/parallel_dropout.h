// SPDX-License-Identifier: Apache-2.0
// Parallel dropout: of a tensor of which each rank of a group has an equal part (features behind a
// column layer, or a part of the sequence). What is dropped is what one process drops of the whole,
// where ranks draw from one state (manual_seed() of the same seed), and they go on from one.
// Megatron-LM draws from another seed on each rank (CudaRNGStatesTracker.fork), so that what is
// dropped depends on the cut. Thread safety: the calling thread's.
#pragma once

#include <peal/comm/group/process_group.h>
#include <peal/nn/layers/dropout.h>

#include <utility>

namespace peal::nn {

// A Dropout of this rank's part.
class ParallelDropout : public Dropout {
 public:
  // `p`: the probability that an element becomes 0, from 0 to 1; Error for another (Dropout).
  // `dim`: along which the ranks have parts, in their order; a negative one counts from the end. A
  // rank draws for the whole, and for a moment has a mask of that.
  ParallelDropout(double p, comm::ProcessGroup group, int dim)
      : Dropout(p), group_(std::move(group)), dim_(dim) {}
  Tensor forward(const Tensor& x) override;

 private:
  comm::ProcessGroup group_;
  int dim_;
};

}  // namespace peal::nn
