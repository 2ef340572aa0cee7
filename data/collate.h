// SPDX-License-Identifier: Apache-2.0
// Collating: single samples become a batch (PyTorch: default_collate, pad_sequence). What has one
// shape is stacked; what differs in its first dimension, as texts do, is padded. Thread safety:
// pure functions.
#pragma once

#include <peal/data/batch.h>

#include <cstdint>
#include <functional>
#include <span>

namespace peal::data {

// One sample: what a row of a Batch is, without the batch's dimension; y may be undefined.
struct Sample {
  Tensor x, y;
  NamedTensors more = {};
};

using Collate = std::function<Batch(std::span<const Sample> samples)>;

// Stacks x, y and the others, each [...] to [B, ...]. Errors, which say which of the samples it is:
// other names, types or shapes than the first one's, a tensor that is not on the CPU, no sample.
Batch collate(std::span<const Sample> samples);

struct Padding {
  double value = 0;       // fills x
  double y_value = -100;  // fills y: what cross_entropy passes over
  enum Side : std::uint8_t { right, left } side = right;
};

// Tensors with dimensions are padded along the first of them to the longest of the batch, those
// without are stacked; what is in `more` is filled with 0. The lengths of x come along as "lengths"
// [B] of i64, where x has dimensions and no sample brings some. Errors: as of collate(), but for
// the sizes of first dimensions, and a value that the type of what is filled does not hold.
Collate pad_collate(const Padding& padding = {});

}  // namespace peal::data
