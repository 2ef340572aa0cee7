// SPDX-License-Identifier: Apache-2.0
// Bytes of images as the floats that a model sees, each channel with a mean and a deviation of its
// own: (byte / 255 - mean) / std, in f32, as torchvision's ToTensor and Normalize to the bit, and
// from (height, width, channels) to (channels, height, width). The last step, when a batch is made:
// until then an image is bytes. Thread safety: immutable.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/data/formats/image.h>
#include <peal/data/pixels.h>

#include <array>

namespace peal::data {

// Of pixels scaled to 0..1, over the training set; by red, green, blue.
struct ChannelNormalisation {
  std::array<float, 3> mean{0, 0, 0}, std{1, 1, 1};
};
inline constexpr ChannelNormalisation imagenet_normalisation{{0.485f, 0.456f, 0.406f},
                                                             {0.229f, 0.224f, 0.225f}};
inline constexpr ChannelNormalisation cifar10_normalisation{{0.4914f, 0.4822f, 0.4465f},
                                                            {0.2470f, 0.2435f, 0.2616f}};

class Normalizer {
 public:
  // Error: a std of 0 or less.
  explicit Normalizer(const ChannelNormalisation& by = {});
  // image [H, W, 3] -> to [3, H, W]. REQUIRES: three channels.
  void planes(const Image& image, float* to) const;

 private:
  ChannelNormalisation by_;
  std::array<std::array<float, 256>, 3> of_byte_;  // by channel
  RgbKernel kernel_;                               // null where it is not this, bit for bit
};

// One image as a tensor [channels, H, W] of f32, byte / 255, for a SampleSet of one's own
// (torchvision: ToTensor). Error: other than channels * H * W bytes.
Tensor to_tensor(const Image& image);

}  // namespace peal::data
