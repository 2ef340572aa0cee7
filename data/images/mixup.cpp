// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/images/mixup.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>

namespace peal::data {
namespace {

// Above 0, below 1.
double inner_uniform(Draw& draw) { return (static_cast<double>(draw.bits()) + 0.5) * 0x1p-32; }

double drawn_normal(Draw& draw) {
  const double radius = std::sqrt(-2 * std::log(inner_uniform(draw)));
  return radius * std::cos(2 * std::numbers::pi * inner_uniform(draw));
}

// The logarithm, since variates of a small alpha are below what f64 has.
double log_of_gamma(double alpha, Draw& draw) {
  if (alpha < 1) {
    const double larger = log_of_gamma(alpha + 1, draw);  // draws first
    return larger + std::log(inner_uniform(draw)) / alpha;
  }
  const double d = alpha - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = drawn_normal(draw), root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(inner_uniform(draw)) < 0.5 * x * x + d - d * v + d * std::log(v)) {
      return std::log(d * v);
    }
  }
}

// y [B] as f32 [B, classes]: `share` of its own class and the rest of the one before.
Tensor shared_classes(const Batch& batch, std::int64_t classes, double share) {
  PEAL_CHECK(batch.x.defined() && batch.y.defined() && batch.x.dtype() == DType::f32 &&
                 batch.x.dim() >= 1 && batch.y.dtype() == DType::i64 &&
                 batch.y.shape() == Shape{batch.x.size(0)} &&
                 batch.x.device().type == DeviceType::cpu &&
                 batch.y.device().type == DeviceType::cpu,
             "[data] mixup: expected x of f32 [B, ...] and classes y of i64 [B], both on the CPU");
  PEAL_CHECK(share >= 0 && share <= 1, "[data] mixup: expected a share from 0 to 1, got ", share);
  const std::int64_t count = batch.size();
  const Tensor made = Tensor::zeros({count, classes}, DType::f32, Device{});
  const auto* label = batch.y.data<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    PEAL_CHECK(label[i] >= 0 && label[i] < classes, "[data] mixup: expected classes from 0 to ",
               classes - 1, ", sample ", i, " has ", label[i]);
    float* row = made.data<float>() + i * classes;
    row[label[i]] += static_cast<float>(share);
    row[label[(i + count - 1) % count]] += static_cast<float>(1 - share);
  }
  return made;
}

}  // namespace

double drawn_beta(double alpha, Draw& draw) {
  PEAL_CHECK(alpha > 0 && std::isfinite(alpha),
             "[data] mixup: expected a finite alpha above 0, got ", alpha);
  const double first = log_of_gamma(alpha, draw), second = log_of_gamma(alpha, draw);
  return 1 / (1 + std::exp(second - first));
}

Batch mixup(const Batch& batch, std::int64_t classes, double share) {
  Batch made{Tensor::empty(batch.x.shape(), DType::f32, Device{}),
             shared_classes(batch, classes, share), batch.more};
  const std::int64_t count = batch.size();
  const std::int64_t each = count == 0 ? 0 : batch.x.numel() / count;
  const auto own = static_cast<float>(share), other = static_cast<float>(1 - share);
  for (std::int64_t i = 0; i < count; ++i) {
    const float* a = batch.x.data<float>() + i * each;
    const float* b = batch.x.data<float>() + (i + count - 1) % count * each;
    float* to = made.x.data<float>() + i * each;
    for (std::int64_t j = 0; j < each; ++j) to[j] = other * b[j] + own * a[j];
  }
  return made;
}

Batch cutmix(const Batch& batch, std::int64_t classes, const Box& box) {
  PEAL_CHECK(batch.x.defined() && batch.x.dim() == 4,
             "[data] cutmix: expected images x [B, C, H, W]");
  const std::int64_t count = batch.size(), channels = batch.x.size(1);
  const std::int64_t height = batch.x.size(2), width = batch.x.size(3);
  PEAL_CHECK(box.top >= 0 && box.left >= 0 && box.height >= 0 && box.width >= 0 &&
                 box.top + box.height <= height && box.left + box.width <= width,
             "[data] cutmix: expected a box inside of ", height, " x ", width, " pixels, got ",
             box.height, " x ", box.width, " at row ", box.top, ", column ", box.left);
  const double share =
      1 - static_cast<double>(box.height * box.width) / static_cast<double>(height * width);
  Batch made{Tensor::empty(batch.x.shape(), DType::f32, Device{}),
             shared_classes(batch, classes, share), batch.more};
  made.x.copy_(batch.x);
  const std::int64_t each = channels * height * width;
  for (std::int64_t i = 0; i < count; ++i) {
    const float* from = batch.x.data<float>() + (i + count - 1) % count * each;
    float* to = made.x.data<float>() + i * each;
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t y = box.top; y < box.top + box.height; ++y) {
        const std::int64_t at = (c * height + y) * width + box.left;
        std::copy_n(from + at, box.width, to + at);
      }
    }
  }
  return made;
}

Box cutmix_box(ImageSize image, double share, Draw& draw) {
  PEAL_CHECK(share >= 0 && share <= 1, "[data] cutmix: expected a share from 0 to 1, got ", share);
  const auto middle_x =
      static_cast<std::int64_t>(draw.below(static_cast<std::uint32_t>(image.width)));
  const auto middle_y =
      static_cast<std::int64_t>(draw.below(static_cast<std::uint32_t>(image.height)));
  const double half = 0.5 * std::sqrt(1 - share);
  const auto half_width = static_cast<std::int64_t>(half * static_cast<double>(image.width));
  const auto half_height = static_cast<std::int64_t>(half * static_cast<double>(image.height));
  const std::int64_t left = std::max<std::int64_t>(0, middle_x - half_width);
  const std::int64_t top = std::max<std::int64_t>(0, middle_y - half_height);
  return {top, left, std::min(image.height, middle_y + half_height) - top,
          std::min(image.width, middle_x + half_width) - left};
}

Mixed::Mixed(DatasetRef images, const MixOptions& options)
    : images_(std::move(images)), options_(options) {
  PEAL_CHECK(images_, "[data] mixup: expected a data set, got none");
  PEAL_CHECK(options.classes >= 1, "[data] mixup: expected at least 1 class, got ",
             options.classes);
  PEAL_CHECK(options.mixup >= 0 && options.cutmix >= 0 && options.mixup + options.cutmix > 0,
             "[data] mixup: expected an alpha above 0 of mixup or cutmix, got ", options.mixup,
             " and ", options.cutmix);
}

Batch Mixed::augmented(std::span<const std::int64_t> indices, const Draws& draws) const {
  const Batch batch = images_->augmented(indices, draws);
  Draw draw = draws.of(indices.empty() ? -1 : -1 - indices[0]);  // no sample's own
  const bool either = options_.mixup > 0 && options_.cutmix > 0;
  if (either ? draw.happens(0.5f) : options_.mixup > 0) {
    return mixup(batch, options_.classes, drawn_beta(options_.mixup, draw));
  }
  if (batch.x.numel() == 0) return mixup(batch, options_.classes, 1);
  const double share = drawn_beta(options_.cutmix, draw);
  return cutmix(batch, options_.classes,
                cutmix_box({batch.x.size(2), batch.x.size(3)}, share, draw));
}

}  // namespace peal::data
