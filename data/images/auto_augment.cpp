// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/images/auto_augment.h>
#include <peal/data/images/colour.h>
#include <peal/data/images/tones.h>

#include <cmath>
#include <numbers>
#include <utility>

namespace peal::data {
namespace {

using Op = AugmentOp;
using Policy = std::array<std::array<PolicyStep, 2>, 25>;

// Those that RandAugment and TrivialAugmentWide draw from: all but invert.
constexpr std::uint32_t drawn_ops = 14;

constexpr Policy imagenet_pairs{{
    {{{Op::posterize, 0.4f, 8}, {Op::rotate, 0.6f, 9}}},
    {{{Op::solarize, 0.6f, 5}, {Op::auto_contrast, 0.6f}}},
    {{{Op::equalize, 0.8f}, {Op::equalize, 0.6f}}},
    {{{Op::posterize, 0.6f, 7}, {Op::posterize, 0.6f, 6}}},
    {{{Op::equalize, 0.4f}, {Op::solarize, 0.2f, 4}}},
    {{{Op::equalize, 0.4f}, {Op::rotate, 0.8f, 8}}},
    {{{Op::solarize, 0.6f, 3}, {Op::equalize, 0.6f}}},
    {{{Op::posterize, 0.8f, 5}, {Op::equalize, 1.0f}}},
    {{{Op::rotate, 0.2f, 3}, {Op::solarize, 0.6f, 8}}},
    {{{Op::equalize, 0.6f}, {Op::posterize, 0.4f, 6}}},
    {{{Op::rotate, 0.8f, 8}, {Op::color, 0.4f, 0}}},
    {{{Op::rotate, 0.4f, 9}, {Op::equalize, 0.6f}}},
    {{{Op::equalize, 0.0f}, {Op::equalize, 0.8f}}},
    {{{Op::invert, 0.6f}, {Op::equalize, 1.0f}}},
    {{{Op::color, 0.6f, 4}, {Op::contrast, 1.0f, 8}}},
    {{{Op::rotate, 0.8f, 8}, {Op::color, 1.0f, 2}}},
    {{{Op::color, 0.8f, 8}, {Op::solarize, 0.8f, 7}}},
    {{{Op::sharpness, 0.4f, 7}, {Op::invert, 0.6f}}},
    {{{Op::shear_x, 0.6f, 5}, {Op::equalize, 1.0f}}},
    {{{Op::color, 0.4f, 0}, {Op::equalize, 0.6f}}},
    {{{Op::equalize, 0.4f}, {Op::solarize, 0.2f, 4}}},
    {{{Op::solarize, 0.6f, 5}, {Op::auto_contrast, 0.6f}}},
    {{{Op::invert, 0.6f}, {Op::equalize, 1.0f}}},
    {{{Op::color, 0.6f, 4}, {Op::contrast, 1.0f, 8}}},
    {{{Op::equalize, 0.8f}, {Op::equalize, 0.6f}}},
}};

constexpr Policy cifar10_pairs{{
    {{{Op::invert, 0.1f}, {Op::contrast, 0.2f, 6}}},
    {{{Op::rotate, 0.7f, 2}, {Op::translate_x, 0.3f, 9}}},
    {{{Op::sharpness, 0.8f, 1}, {Op::sharpness, 0.9f, 3}}},
    {{{Op::shear_y, 0.5f, 8}, {Op::translate_y, 0.7f, 9}}},
    {{{Op::auto_contrast, 0.5f}, {Op::equalize, 0.9f}}},
    {{{Op::shear_y, 0.2f, 7}, {Op::posterize, 0.3f, 7}}},
    {{{Op::color, 0.4f, 3}, {Op::brightness, 0.6f, 7}}},
    {{{Op::sharpness, 0.3f, 9}, {Op::brightness, 0.7f, 9}}},
    {{{Op::equalize, 0.6f}, {Op::equalize, 0.5f}}},
    {{{Op::contrast, 0.6f, 7}, {Op::sharpness, 0.6f, 5}}},
    {{{Op::color, 0.7f, 7}, {Op::translate_x, 0.5f, 8}}},
    {{{Op::equalize, 0.3f}, {Op::auto_contrast, 0.4f}}},
    {{{Op::translate_y, 0.4f, 3}, {Op::sharpness, 0.2f, 6}}},
    {{{Op::brightness, 0.9f, 6}, {Op::color, 0.2f, 8}}},
    {{{Op::solarize, 0.5f, 2}, {Op::invert, 0.0f}}},
    {{{Op::equalize, 0.2f}, {Op::auto_contrast, 0.6f}}},
    {{{Op::equalize, 0.2f}, {Op::equalize, 0.6f}}},
    {{{Op::color, 0.9f, 9}, {Op::equalize, 0.6f}}},
    {{{Op::auto_contrast, 0.8f}, {Op::solarize, 0.2f, 8}}},
    {{{Op::brightness, 0.1f, 3}, {Op::color, 0.7f, 0}}},
    {{{Op::solarize, 0.4f, 5}, {Op::auto_contrast, 0.9f}}},
    {{{Op::translate_y, 0.9f, 9}, {Op::translate_y, 0.7f, 9}}},
    {{{Op::auto_contrast, 0.9f}, {Op::solarize, 0.8f, 3}}},
    {{{Op::equalize, 0.8f}, {Op::invert, 0.1f}}},
    {{{Op::translate_y, 0.7f, 9}, {Op::auto_contrast, 0.9f}}},
}};

constexpr Policy svhn_pairs{{
    {{{Op::shear_x, 0.9f, 4}, {Op::invert, 0.2f}}},
    {{{Op::shear_y, 0.9f, 8}, {Op::invert, 0.7f}}},
    {{{Op::equalize, 0.6f}, {Op::solarize, 0.6f, 6}}},
    {{{Op::invert, 0.9f}, {Op::equalize, 0.6f}}},
    {{{Op::equalize, 0.6f}, {Op::rotate, 0.9f, 3}}},
    {{{Op::shear_x, 0.9f, 4}, {Op::auto_contrast, 0.8f}}},
    {{{Op::shear_y, 0.9f, 8}, {Op::invert, 0.4f}}},
    {{{Op::shear_y, 0.9f, 5}, {Op::solarize, 0.2f, 6}}},
    {{{Op::invert, 0.9f}, {Op::auto_contrast, 0.8f}}},
    {{{Op::equalize, 0.6f}, {Op::rotate, 0.9f, 3}}},
    {{{Op::shear_x, 0.9f, 4}, {Op::solarize, 0.3f, 3}}},
    {{{Op::shear_y, 0.8f, 8}, {Op::invert, 0.7f}}},
    {{{Op::equalize, 0.9f}, {Op::translate_y, 0.6f, 6}}},
    {{{Op::invert, 0.9f}, {Op::equalize, 0.6f}}},
    {{{Op::contrast, 0.3f, 3}, {Op::rotate, 0.8f, 4}}},
    {{{Op::invert, 0.8f}, {Op::translate_y, 0.0f, 2}}},
    {{{Op::shear_y, 0.7f, 6}, {Op::solarize, 0.4f, 8}}},
    {{{Op::invert, 0.6f}, {Op::rotate, 0.8f, 4}}},
    {{{Op::shear_y, 0.3f, 7}, {Op::translate_x, 0.9f, 3}}},
    {{{Op::shear_x, 0.1f, 6}, {Op::invert, 0.6f}}},
    {{{Op::solarize, 0.7f, 2}, {Op::translate_y, 0.6f, 7}}},
    {{{Op::shear_y, 0.8f, 4}, {Op::invert, 0.8f}}},
    {{{Op::shear_x, 0.7f, 9}, {Op::translate_y, 0.8f, 3}}},
    {{{Op::shear_y, 0.8f, 5}, {Op::auto_contrast, 0.7f}}},
    {{{Op::shear_x, 0.7f, 2}, {Op::invert, 0.1f}}},
}};

bool is_signed(Op op) { return op >= Op::shear_x && op <= Op::sharpness; }

// Number i of n from `start` to `end`, in f32, from the nearer end (torch.linspace).
double spaced(float start, float end, std::int64_t i, std::int64_t n) {
  const float step = (end - start) / static_cast<float>(n - 1);
  return i < n / 2 ? start + step * static_cast<float>(i)
                   : end - step * static_cast<float>(n - 1 - i);
}

void check_bin(std::int64_t bin, std::int64_t bins) {
  PEAL_CHECK(bins >= 2 && bin >= 0 && bin < bins,
             "[data] augment: expected a magnitude below the number of bins, and at least 2 of "
             "these, got magnitude ",
             bin, " of ", bins);
}

// How far each operation goes.
struct Space {
  float shear, across, down, degrees, factor, bits;
};

double magnitude_in(const Space& space, Op op, std::int64_t bin, std::int64_t bins) {
  check_bin(bin, bins);
  switch (op) {
    case Op::shear_x:
    case Op::shear_y:
      return spaced(0, space.shear, bin, bins);
    case Op::translate_x:
      return spaced(0, space.across, bin, bins);
    case Op::translate_y:
      return spaced(0, space.down, bin, bins);
    case Op::rotate:
      return spaced(0, space.degrees, bin, bins);
    case Op::brightness:
    case Op::color:
    case Op::contrast:
    case Op::sharpness:
      return spaced(0, space.factor, bin, bins);
    case Op::posterize: {
      const auto bins_a_bit = static_cast<float>(static_cast<double>(bins - 1) / space.bits);
      return 8 - std::nearbyint(static_cast<float>(bin) / bins_a_bit);
    }
    case Op::solarize:
      return spaced(255, 0, bin, bins);
    case Op::identity:
    case Op::auto_contrast:
    case Op::equalize:
    case Op::invert:
      break;
  }
  return 0;
}

Image done(Image image, const std::vector<AugmentStep>& steps, const AugmentOptions& options) {
  for (const AugmentStep& step : steps) image = augmented(std::move(image), step, options);
  return image;
}

// With either sign, where it has one.
AugmentStep step_of(Op op, double magnitude, Draw& draw) {
  return {op, is_signed(op) && draw.below(2) == 1 ? -magnitude : magnitude};
}

}  // namespace

Image augmented(Image image, const AugmentStep& step, const AugmentOptions& options) {
  PEAL_CHECK(image.channels == 3, "[data] augment: expected an image of 3 channels, got ",
             image.channels);
  const double magnitude = step.magnitude;
  const auto moved = [&](double across, double down) {
    return affine(image, 0, {std::trunc(across), std::trunc(down)}, 1, {0, 0},
                  {options.interpolation, options.fill});
  };
  const auto sheared = [&](double along_x, double along_y) {
    const auto degrees = [](double tangent) {
      return std::atan(tangent) * (180 / std::numbers::pi);
    };
    return affine(image, 0, {0, 0}, 1, {degrees(along_x), degrees(along_y)},
                  {options.interpolation, options.fill, std::array{0.0, 0.0}});
  };
  switch (step.op) {
    case Op::identity:
      return image;
    case Op::shear_x:
      return sheared(magnitude, 0);
    case Op::shear_y:
      return sheared(0, magnitude);
    case Op::translate_x:
      return moved(magnitude, 0);
    case Op::translate_y:
      return moved(0, magnitude);
    case Op::rotate:
      return rotated(image, magnitude, options.interpolation, false, options.fill);
    case Op::brightness:
      return brightness_adjusted(std::move(image), 1 + magnitude);
    case Op::color:
      return saturation_adjusted(std::move(image), 1 + magnitude);
    case Op::contrast:
      return contrast_adjusted(std::move(image), 1 + magnitude);
    case Op::sharpness:
      return sharpness_adjusted(std::move(image), 1 + magnitude);
    case Op::posterize:
      return posterized(std::move(image), static_cast<int>(magnitude));
    case Op::solarize:
      return solarized(std::move(image), magnitude);
    case Op::auto_contrast:
      return autocontrasted(std::move(image));
    case Op::equalize:
      return equalized(std::move(image));
    case Op::invert:
      return inverted(std::move(image));
  }
  fail("[data] augment: there is no such operation");
}

double augment_magnitude(AugmentOp op, std::int64_t bin, std::int64_t bins, ImageSize image) {
  const auto share = [](std::int64_t side) {
    return static_cast<float>(150.0 / 331.0 * static_cast<double>(side));
  };
  return magnitude_in({0.3f, share(image.width), share(image.height), 30, 0.9f, 4}, op, bin, bins);
}

double wide_augment_magnitude(AugmentOp op, std::int64_t bin, std::int64_t bins) {
  return magnitude_in({0.99f, 32, 32, 135, 0.99f, 6}, op, bin, bins);
}

std::span<const std::array<PolicyStep, 2>> pairs_of(AutoAugmentPolicy policy) {
  switch (policy) {
    case AutoAugmentPolicy::imagenet:
      return imagenet_pairs;
    case AutoAugmentPolicy::cifar10:
      return cifar10_pairs;
    case AutoAugmentPolicy::svhn:
      return svhn_pairs;
  }
  fail("[data] AutoAugment: there is no such policy");
}

std::vector<AugmentStep> AutoAugment::drawn(ImageSize image, Draw& draw) const {
  constexpr std::int64_t bins = 10;
  const auto pairs = pairs_of(policy_);
  std::vector<AugmentStep> steps;
  for (const PolicyStep& step : pairs[draw.below(static_cast<std::uint32_t>(pairs.size()))]) {
    if (!draw.happens(step.p)) continue;
    const double magnitude = step.bin ? augment_magnitude(step.op, *step.bin, bins, image) : 0;
    steps.push_back(step_of(step.op, magnitude, draw));
  }
  return steps;
}

Image AutoAugment::apply(Image image, Draw& draw) const {
  const auto steps = drawn(image.size(), draw);
  return done(std::move(image), steps, options_);
}

RandAugment::RandAugment(std::int64_t num_ops, std::int64_t magnitude,
                         std::int64_t num_magnitude_bins, const AugmentOptions& options)
    : num_ops_(num_ops), magnitude_(magnitude), bins_(num_magnitude_bins), options_(options) {
  PEAL_CHECK(num_ops >= 1, "[data] RandAugment: expected at least 1 operation, got ", num_ops);
  check_bin(magnitude, num_magnitude_bins);
}

std::vector<AugmentStep> RandAugment::drawn(ImageSize image, Draw& draw) const {
  std::vector<AugmentStep> steps;
  for (std::int64_t i = 0; i < num_ops_; ++i) {
    const auto op = static_cast<Op>(draw.below(drawn_ops));
    steps.push_back(step_of(op, augment_magnitude(op, magnitude_, bins_, image), draw));
  }
  return steps;
}

Image RandAugment::apply(Image image, Draw& draw) const {
  const auto steps = drawn(image.size(), draw);
  return done(std::move(image), steps, options_);
}

TrivialAugmentWide::TrivialAugmentWide(std::int64_t num_magnitude_bins,
                                       const AugmentOptions& options)
    : bins_(num_magnitude_bins), options_(options) {
  check_bin(0, num_magnitude_bins);
}

AugmentStep TrivialAugmentWide::drawn(Draw& draw) const {
  const auto op = static_cast<Op>(draw.below(drawn_ops));
  const std::int64_t bin = draw.below(static_cast<std::uint32_t>(bins_));
  return step_of(op, wide_augment_magnitude(op, bin, bins_), draw);
}

Image TrivialAugmentWide::apply(Image image, Draw& draw) const {
  return augmented(std::move(image), drawn(draw), options_);
}

}  // namespace peal::data
