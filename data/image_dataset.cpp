// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/image_dataset.h>

#include <cstddef>
#include <numeric>
#include <utility>

namespace peal::data {

ImageDataset::ImageDataset(std::string name, const Shape& image, std::vector<std::uint8_t> pixels,
                           std::vector<std::int64_t> labels, std::int64_t classes,
                           Normalisation normalisation)
    : name_(std::move(name)),
      image_(image),
      pixels_(std::move(pixels)),
      labels_(std::move(labels)),
      classes_(classes),
      normalisation_(normalisation),
      kernel_(pixel_kernel()) {
  const auto expected = size() * image_.numel();
  PEAL_CHECK(image_.dim() == 3, "[data] ", name_, ": expected images [C, H, W], got ", image_);
  PEAL_CHECK(static_cast<std::int64_t>(pixels_.size()) == expected, "[data] ", name_, ": expected ",
             expected, " pixels for ", size(), " labels and images ", image_, ", got ",
             pixels_.size());
  PEAL_CHECK(normalisation.std > 0, "[data] ", name_, ": expected a std above 0, got ",
             normalisation.std);
  for (std::size_t i = 0; i < labels_.size(); ++i) {
    PEAL_CHECK(labels_[i] >= 0 && labels_[i] < classes_, "[data] ", name_,
               ": expected classes from 0 to ", classes_ - 1, ", sample ", i, " has ", labels_[i]);
  }
  for (std::size_t pixel = 0; pixel < normalised_.size(); ++pixel) {
    const float scaled = static_cast<float>(pixel) / 255.0f;
    normalised_[pixel] = (scaled - normalisation.mean) / normalisation.std;
  }
  std::array<std::uint8_t, 256> every{};
  std::array<float, 256> made{};
  std::iota(every.begin(), every.end(), std::uint8_t{0});
  kernel_(every.data(), 256, normalisation.mean, normalisation.std, made.data());
  if (made != normalised_) kernel_ = nullptr;
}

Batch ImageDataset::get(std::span<const std::int64_t> indices) const {
  const auto count = static_cast<std::int64_t>(indices.size());
  Batch batch{Tensor::empty({count, image_[0], image_[1], image_[2]}, DType::f32, Device{}),
              Tensor::empty({count}, DType::i64, Device{})};
  float* x = batch.x.data<float>();
  std::int64_t* y = batch.y.data<std::int64_t>();
  for (const std::int64_t index : indices) {
    const std::span<const std::uint8_t> image = pixels(index);
    if (kernel_ != nullptr) {
      kernel_(image.data(), image_.numel(), normalisation_.mean, normalisation_.std, x);
      x += image.size();
    } else {
      for (const std::uint8_t pixel : image) *x++ = normalised_[pixel];
    }
    *y++ = label(index);
  }
  return batch;
}

std::span<const std::uint8_t> ImageDataset::pixels(std::int64_t index) const {
  check_index(index);
  const auto each = static_cast<std::size_t>(image_.numel());
  return std::span(pixels_).subspan(static_cast<std::size_t>(index) * each, each);
}

std::int64_t ImageDataset::label(std::int64_t index) const {
  check_index(index);
  return labels_[static_cast<std::size_t>(index)];
}

void ImageDataset::check_index(std::int64_t index) const {
  PEAL_CHECK(index >= 0 && index < size(), "[data] ", name_, ": expected an index from 0 to ",
             size() - 1, ", got ", index);
}

}  // namespace peal::data
