// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/pad.h>
#include <peal/nn/pad_sequence.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace peal::nn {

Tensor pad_sequence(const Tensors& sequences, bool batch_first, double padding_value,
                    bool pad_left) {
  PEAL_CHECK(!sequences.empty(), "pad_sequence: there are no sequences");
  std::int64_t longest = 0;
  for (const Tensor& each : sequences) {
    PEAL_CHECK(each.dim() > 0, "pad_sequence: expected sequences [L, ...], got shape ",
               each.shape());
    Shape alike = each.shape();
    alike[0] = sequences[0].size(0);
    PEAL_CHECK(alike == sequences[0].shape(), "pad_sequence: expected ", sequences[0].shape(),
               " but for the length, got ", each.shape());
    longest = std::max(longest, each.size(0));
  }
  Tensors padded;
  for (const Tensor& each : sequences) {
    std::vector<std::int64_t> pads(2 * static_cast<std::size_t>(each.dim()), 0);
    pads[pads.size() - (pad_left ? 2 : 1)] = longest - each.size(0);
    padded.push_back(pad(each, pads, PadMode::constant, padding_value));
  }
  return stack(padded, batch_first ? 0 : 1);
}

}  // namespace peal::nn
