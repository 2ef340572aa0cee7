// SPDX-License-Identifier: Apache-2.0
// Transforms of images as bytes: what happens between the decoder and the batch. One that draws
// takes what it draws from the sample's own stream (draw.h), so that a sample looks the same
// whatever worker, rank or batch it is in.
//
//   const data::Compose training{data::RandomResizedCrop(224), data::RandomHorizontalFlip()};
//   const data::Compose testing{data::Resize(256), data::CenterCrop(224)};
//
// The first of several may ask the file for less than the whole image: a crop has only its part of
// a JPEG decoded. Thread safety: immutable.
#pragma once

#include <peal/data/draw.h>
#include <peal/data/formats/encoded_image.h>

#include <concepts>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace peal::data {

class Transform {
 public:
  virtual ~Transform() = default;
  virtual Image apply(Image image, Draw& draw) const = 0;
  // Of an image that is not decoded yet.
  virtual Image open(EncodedImage& image, Draw& draw) const { return apply(image.decode(), draw); }
};

// One after the other. Of none: the image as it is.
class Compose : public Transform {
 public:
  Compose() = default;
  template <std::derived_from<Transform> First, std::derived_from<Transform>... Others>
  requires(sizeof...(Others) > 0 ||
           !std::same_as<First, Compose>) explicit Compose(First first, Others... others) {
    steps_.push_back(std::make_shared<const First>(std::move(first)));
    (steps_.push_back(std::make_shared<const Others>(std::move(others))), ...);
  }

  Image apply(Image image, Draw& draw) const override {
    for (const auto& step : steps_) image = step->apply(std::move(image), draw);
    return image;
  }
  Image open(EncodedImage& image, Draw& draw) const override {
    if (steps_.empty()) return image.decode();
    Image made = steps_.front()->open(image, draw);
    for (std::size_t i = 1; i < steps_.size(); ++i) made = steps_[i]->apply(std::move(made), draw);
    return made;
  }

 private:
  std::vector<std::shared_ptr<const Transform>> steps_;
};

// A function of one's own: a pure function of the image and of what it draws.
class Lambda : public Transform {
 public:
  explicit Lambda(std::function<Image(Image, Draw&)> function) : function_(std::move(function)) {}
  Image apply(Image image, Draw& draw) const override { return function_(std::move(image), draw); }

 private:
  std::function<Image(Image, Draw&)> function_;
};

}  // namespace peal::data
