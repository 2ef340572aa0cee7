// SPDX-License-Identifier: Apache-2.0
// Forked generator (Megatron-LM: CudaRNGStatesTracker.fork): while one lives, this thread draws
// random numbers that are other ones on each rank of a group, and are a function of the generator's
// state before and the rank. For dropout of what each rank has a part of; equal numbers would drop
// the same places of all parts:
//
//   {
//     const nn::ForkedGenerator forked(tensor_parallel);
//     hidden = dropout(hidden, 0.1, training());      // of a rank's features
//   }
//
// Afterwards ranks draw the same again, where they drew equally many meanwhile. A group of one
// draws what it would without. Thread safety: the calling thread's.
#pragma once

#include <peal/autograd/core/context.h>
#include <peal/comm/group/process_group.h>
#include <peal/comm/schedule/mix.h>
#include <peal/nn/layers/dropout.h>

#include <cstdint>
#include <utility>

namespace peal::nn {

class ForkedGenerator {
 public:
  // Other numbers on each rank of the group; those of one rank alone stay as they are.
  explicit ForkedGenerator(const comm::ProcessGroup& group) : before_(context().generator.seed) {
    if (group.world() == 1) return;
    comm::mix(context().generator.seed, static_cast<std::uint64_t>(group.rank()) + 1);
  }
  ~ForkedGenerator() { context().generator.seed = before_; }
  ForkedGenerator(const ForkedGenerator&) = delete;
  ForkedGenerator& operator=(const ForkedGenerator&) = delete;

 private:
  std::uint64_t before_;
};

// Dropout with other numbers on each rank: of parts of the features, or of the sequence.
class ParallelDropout : public Dropout {
 public:
  // `p`: the probability that an element becomes 0, from 0 to 1; Error for another (Dropout).
  ParallelDropout(double p, comm::ProcessGroup group) : Dropout(p), group_(std::move(group)) {}
  Tensor forward(const Tensor& x) override {
    const ForkedGenerator forked(group_);
    return Dropout::forward(x);
  }

 private:
  comm::ProcessGroup group_;
};

}  // namespace peal::nn
