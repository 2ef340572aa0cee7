// SPDX-License-Identifier: Apache-2.0
// Automatic augmentation: a few operations on an image, drawn from a space of them, with strengths
// from it. AutoAugment (Cubuk et al., arXiv:1805.09501) draws one of 25 pairs that a search had
// found, RandAugment (arXiv:1909.13719) operations of one strength, TrivialAugmentWide (Mueller and
// Hutter, arXiv:2103.10158) one of any strength. Names, defaults, spaces and pairs are
// torchvision's, and what an operation gives is what it gives on PIL images.
//
//   data::Compose{data::RandomResizedCrop(224), data::RandomHorizontalFlip(),
//                 data::TrivialAugmentWide()}
//
// Drawing and doing are apart, as in random_transforms.h. Thread safety: immutable.
#pragma once

#include <peal/data/images/geometry.h>
#include <peal/data/images/transform.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace peal::data {

enum class AugmentOp : std::uint8_t {
  identity,
  shear_x,
  shear_y,
  translate_x,
  translate_y,
  rotate,
  brightness,
  color,
  contrast,
  sharpness,
  posterize,
  solarize,
  auto_contrast,
  equalize,
  invert
};

// What is drawn. The magnitude is the tangent of a shear, pixels of a translation (its whole part),
// degrees of a rotation, the bits that posterize leaves, the threshold of solarize, what is above
// or below 1 in a factor of brightness, color (saturation), contrast or sharpness; of others none.
struct AugmentStep {
  AugmentOp op = AugmentOp::identity;
  double magnitude = 0;
  bool operator==(const AugmentStep&) const = default;
};

struct AugmentOptions {
  Interpolation interpolation = Interpolation::nearest;  // or bilinear
  Colour fill = {};                                      // of what comes from outside
};

// Errors: an image of other than three channels, those of the operation (colour.h, geometry.h).
Image augmented(Image image, const AugmentStep& step, const AugmentOptions& options = {});

// Strength number `bin` of `bins` for images of this size, without a sign: of AutoAugment and of
// RandAugment, and of TrivialAugmentWide. Error: less than 2 bins, one that there is not.
double augment_magnitude(AugmentOp op, std::int64_t bin, std::int64_t bins, ImageSize image);
double wide_augment_magnitude(AugmentOp op, std::int64_t bin, std::int64_t bins);

// For which images the pairs were found.
enum class AutoAugmentPolicy : std::uint8_t { imagenet, cifar10, svhn };
// With this probability, of strength `bin` of 10, where the operation has strengths.
struct PolicyStep {
  AugmentOp op;
  float p;
  std::optional<std::int64_t> bin = {};
};
std::span<const std::array<PolicyStep, 2>> pairs_of(AutoAugmentPolicy policy);

class AutoAugment : public Transform {
 public:
  explicit AutoAugment(AutoAugmentPolicy policy = AutoAugmentPolicy::imagenet,
                       const AugmentOptions& options = {})
      : policy_(policy), options_(options) {}
  std::vector<AugmentStep> drawn(ImageSize image, Draw& draw) const;
  Image apply(Image image, Draw& draw) const override;

 private:
  AutoAugmentPolicy policy_;
  AugmentOptions options_;
};

class RandAugment : public Transform {
 public:
  // Error: no operation, or a magnitude that is none of the bins.
  explicit RandAugment(std::int64_t num_ops = 2, std::int64_t magnitude = 9,
                       std::int64_t num_magnitude_bins = 31, const AugmentOptions& options = {});
  std::vector<AugmentStep> drawn(ImageSize image, Draw& draw) const;
  Image apply(Image image, Draw& draw) const override;

 private:
  std::int64_t num_ops_, magnitude_, bins_;
  AugmentOptions options_;
};

class TrivialAugmentWide : public Transform {
 public:
  explicit TrivialAugmentWide(std::int64_t num_magnitude_bins = 31,
                              const AugmentOptions& options = {});
  AugmentStep drawn(Draw& draw) const;
  Image apply(Image image, Draw& draw) const override;

 private:
  std::int64_t bins_;
  AugmentOptions options_;
};

}  // namespace peal::data
