// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/images/colour.h>
#include <peal/data/images/random_transforms.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace peal::data {
namespace {

double between(const Range& range, Draw& draw) {
  return range.low + (range.high - range.low) * static_cast<double>(draw.uniform());
}

double between_logarithms(const Range& range, Draw& draw) {
  return std::exp(between({std::log(range.low), std::log(range.high)}, draw));
}

// 0..count-1, of counts that are pixels.
std::int64_t one_of(std::int64_t count, Draw& draw) {
  return draw.below(static_cast<std::uint32_t>(count));
}

// To the even number, as Python's round() does.
std::int64_t rounded(double x) { return static_cast<std::int64_t>(std::nearbyint(x)); }

float probability(const char* what, double p) {
  PEAL_CHECK(p >= 0 && p <= 1, "[data] ", what, ": expected a probability from 0 to 1, got ", p);
  return static_cast<float>(p);
}

void check_shares(const char* what, const Range& scale, const Range& ratio) {
  PEAL_CHECK(scale.low > 0 && scale.low <= scale.high && scale.high <= 1 && ratio.low > 0 &&
                 ratio.low <= ratio.high,
             "[data] ", what, ": expected shares of the area of 0 < low <= high <= 1 and ratios ",
             "of 0 < low <= high, got ", scale.low, " to ", scale.high, " and ", ratio.low, " to ",
             ratio.high);
}

}  // namespace

RandomResizedCrop::RandomResizedCrop(ImageSize size, const ResizedCropOptions& options)
    : size_(size), options_(options) {
  check_side("RandomResizedCrop", size);
  check_shares("RandomResizedCrop", options.scale, options.ratio);
}

Box RandomResizedCrop::box_of(ImageSize image, Draw& draw) const {
  const auto height = static_cast<double>(image.height), width = static_cast<double>(image.width);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double area = height * width * between(options_.scale, draw);
    const double ratio = between_logarithms(options_.ratio, draw);
    const std::int64_t w = rounded(std::sqrt(area * ratio)), h = rounded(std::sqrt(area / ratio));
    if (w < 1 || h < 1 || w > image.width || h > image.height) continue;
    const std::int64_t top = one_of(image.height - h + 1, draw);
    return {top, one_of(image.width - w + 1, draw), h, w};
  }
  std::int64_t h = image.height, w = image.width;
  if (width / height < options_.ratio.low) {
    h = std::clamp<std::int64_t>(rounded(width / options_.ratio.low), 1, image.height);
  } else if (width / height > options_.ratio.high) {
    w = std::clamp<std::int64_t>(rounded(height * options_.ratio.high), 1, image.width);
  }
  return {(image.height - h) / 2, (image.width - w) / 2, h, w};
}

Image RandomResizedCrop::apply(Image image, Draw& draw) const {
  return resized(cropped(image, box_of(image.size(), draw)), size_, options_.interpolation);
}

Image RandomResizedCrop::open(EncodedImage& image, Draw& draw) const {
  const Box box = box_of(image.size(), draw);
  if (!options_.scaled_decode) return resized(image.decode(box), size_, options_.interpolation);
  const auto part = image.decode_about(box, size_);
  return resized(part.image, {part.top, part.left, part.height, part.width}, size_,
                 options_.interpolation);
}

RandomCrop::RandomCrop(ImageSize size, const CropOptions& options)
    : size_(size), options_(options) {
  check_side("RandomCrop", size);
  PEAL_CHECK(options.padding >= 0, "[data] RandomCrop: expected a padding of at least 0, got ",
             options.padding);
}

Box RandomCrop::box_of(ImageSize padded, Draw& draw) const {
  PEAL_CHECK(padded.height >= size_.height && padded.width >= size_.width,
             "[data] RandomCrop: expected an image of at least ", size_.height, " x ", size_.width,
             " pixels, got ", padded.height, " x ", padded.width, " with its padding");
  const std::int64_t top = one_of(padded.height - size_.height + 1, draw);
  return {top, one_of(padded.width - size_.width + 1, draw), size_.height, size_.width};
}

Image RandomCrop::apply(Image image, Draw& draw) const {
  if (const std::int64_t by = options_.padding; by > 0) {
    image = padded(image, {by, by, by, by}, options_.fill, options_.mode);
  }
  return cropped(image, box_of(image.size(), draw));
}

RandomHorizontalFlip::RandomHorizontalFlip(double p) : p_(probability("RandomHorizontalFlip", p)) {}

Image RandomHorizontalFlip::apply(Image image, Draw& draw) const {
  return draw.happens(p_) ? hflipped(std::move(image)) : image;
}

RandomVerticalFlip::RandomVerticalFlip(double p) : p_(probability("RandomVerticalFlip", p)) {}

Image RandomVerticalFlip::apply(Image image, Draw& draw) const {
  return draw.happens(p_) ? vflipped(std::move(image)) : image;
}

RandomRotation::RandomRotation(Range degrees, const RotationOptions& options)
    : degrees_(degrees), options_(options) {
  PEAL_CHECK(degrees.low <= degrees.high, "[data] RandomRotation: expected degrees from low to ",
             "high, got ", degrees.low, " to ", degrees.high);
}

double RandomRotation::angle_of(Draw& draw) const { return between(degrees_, draw); }

Image RandomRotation::apply(Image image, Draw& draw) const {
  return rotated(image, angle_of(draw), options_.interpolation, options_.expand, options_.fill);
}

ColorJitter::ColorJitter(const JitterStrength& strength) : strength_(strength) {
  PEAL_CHECK(strength.brightness >= 0 && strength.contrast >= 0 && strength.saturation >= 0 &&
                 strength.hue >= 0 && strength.hue <= 0.5,
             "[data] ColorJitter: expected strengths of at least 0, of hue at most 0.5, got ",
             strength.brightness, ", ", strength.contrast, ", ", strength.saturation, ", ",
             strength.hue);
}

ColorJitter::Drawn ColorJitter::drawn(Draw& draw) const {
  Drawn made;
  for (std::uint32_t i = 4; i > 1; --i) std::swap(made.order[i - 1], made.order[draw.below(i)]);
  const auto factor = [&](double strength) -> std::optional<double> {
    if (strength == 0) return std::nullopt;
    return between({std::max(0.0, 1 - strength), 1 + strength}, draw);
  };
  made.factor[0] = factor(strength_.brightness);
  made.factor[1] = factor(strength_.contrast);
  made.factor[2] = factor(strength_.saturation);
  if (strength_.hue > 0) made.factor[3] = between({-strength_.hue, strength_.hue}, draw);
  return made;
}

Image ColorJitter::apply(Image image, const Drawn& drawn) {
  constexpr std::array adjusted{&brightness_adjusted, &contrast_adjusted, &saturation_adjusted,
                                &hue_adjusted};
  for (const int step : drawn.order) {
    const auto which = static_cast<std::size_t>(step);
    if (drawn.factor[which]) image = adjusted[which](std::move(image), *drawn.factor[which]);
  }
  return image;
}

Image ColorJitter::apply(Image image, Draw& draw) const {
  return apply(std::move(image), drawn(draw));
}

RandomErasing::RandomErasing(const ErasingOptions& options) : options_(options) {
  probability("RandomErasing", options.p);
  check_shares("RandomErasing", options.scale, options.ratio);
}

std::optional<Box> RandomErasing::box_of(ImageSize image, Draw& draw) const {
  if (!draw.happens(static_cast<float>(options_.p))) return std::nullopt;
  const auto all = static_cast<double>(image.height * image.width);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double area = all * between(options_.scale, draw);
    const double ratio = between_logarithms(options_.ratio, draw);
    const std::int64_t h = rounded(std::sqrt(area * ratio)), w = rounded(std::sqrt(area / ratio));
    if (h < 1 || w < 1 || h >= image.height || w >= image.width) continue;
    const std::int64_t top = one_of(image.height - h + 1, draw);
    return Box{top, one_of(image.width - w + 1, draw), h, w};
  }
  return std::nullopt;
}

Image RandomErasing::apply(Image image, Draw& draw) const {
  const auto box = box_of(image.size(), draw);
  return box ? erased(std::move(image), *box, options_.fill) : image;
}

}  // namespace peal::data
