// SPDX-License-Identifier: Apache-2.0
// Sequences of several lengths as one tensor (torch.nn.utils.rnn.pad_sequence). Recurrent layers
// take the lengths beside it (layers/recurrent.h); a loader does the same as a collate
// (data/collate.h). Thread safety: as of the operands.
#pragma once

#include <peal/autograd/core/tensor.h>

namespace peal::nn {

// Of [L_i, ...], equal but for their lengths: [longest, N, ...], or [N, longest, ...]; behind the
// end of each, or with pad_left before its begin, stands padding_value. Recorded. Error for none,
// and for shapes that differ otherwise.
Tensor pad_sequence(const Tensors& sequences, bool batch_first = false, double padding_value = 0,
                    bool pad_left = false);

}  // namespace peal::nn
