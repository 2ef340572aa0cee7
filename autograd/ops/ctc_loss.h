// SPDX-License-Identifier: Apache-2.0
// Connectionist temporal classification: minus the logarithm of the probability that a sequence of
// scores says the target, over all ways to repeat its classes and to put blanks between them
// (Graves et al., "Connectionist temporal classification", ICML 2006). By the host, in f64 and
// logarithms, so that a device is waited for. Thread safety: as of the operands.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/ops/loss.h>

namespace peal {

struct CTCOptions {
  std::int64_t blank = 0;                 // the class that says nothing
  Reduction reduction = Reduction::mean;  // of losses that are divided by their target's length
  bool zero_infinity = false;             // no loss and gradient where no way is long enough
};

// log_probabilities [T, N, C], as log_softmax gives them; targets i64 [N, S], or one after the
// other in a row; input_lengths [N], at most T, and target_lengths [N] in i64. -> a scalar, or [N]
// with Reduction::none. Or of one sequence: [T, C], [S] and lengths of one element. The gradient is
// that to the logarithms as they are (PyTorch's takes them for results of log_softmax: what arrives
// before that is the same), and has none of its own.
Tensor ctc_loss(const Tensor& log_probabilities, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, const CTCOptions& options = {});

}  // namespace peal
