// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/images/normalisation.h>

#include <cstddef>
#include <vector>

namespace peal::data {

Normalizer::Normalizer(const ChannelNormalisation& by) : by_(by), kernel_(rgb_kernel()) {
  std::vector<std::uint8_t> every(std::size_t{3} * 256);
  for (std::size_t c = 0; c < 3; ++c) {
    PEAL_CHECK(by.std[c] > 0, "[data] normalisation: expected a std above 0 of channel ", c,
               ", got ", by.std[c]);
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const float scaled = static_cast<float>(byte) / 255.0f;
      of_byte_[c][byte] = (scaled - by.mean[c]) / by.std[c];
      every[3 * byte + c] = static_cast<std::uint8_t>(byte);
    }
  }
  std::array<std::array<float, 256>, 3> made{};
  kernel_(every.data(), 256, by_.mean.data(), by_.std.data(), made[0].data());
  if (made != of_byte_) kernel_ = nullptr;
}

void Normalizer::planes(const Image& image, float* to) const {
  const std::int64_t pixels = image.height * image.width;
  if (kernel_ != nullptr) {
    return kernel_(image.pixels.data(), pixels, by_.mean.data(), by_.std.data(), to);
  }
  for (std::size_t c = 0; c < 3; ++c) {
    const std::uint8_t* from = image.pixels.data() + c;
    for (std::int64_t i = 0; i < pixels; ++i) *to++ = of_byte_[c][from[3 * i]];
  }
}

Tensor to_tensor(const Image& image) {
  const std::int64_t pixels = image.height * image.width;
  PEAL_CHECK(std::ssize(image.pixels) == pixels * image.channels, "[data] to_tensor: expected ",
             image.height, " x ", image.width, " x ", image.channels, " bytes, got ",
             image.pixels.size());
  Tensor made = Tensor::empty({image.channels, image.height, image.width}, DType::f32, Device{});
  float* to = made.data<float>();
  for (std::int64_t c = 0; c < image.channels; ++c) {
    const std::uint8_t* from = image.pixels.data() + c;
    for (std::int64_t i = 0; i < pixels; ++i) {
      *to++ = static_cast<float>(from[i * image.channels]) / 255.0f;
    }
  }
  return made;
}

}  // namespace peal::data
