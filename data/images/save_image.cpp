// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/atomic_file.h>
#include <peal/data/formats/png.h>
#include <peal/data/images/save_image.h>

#include <algorithm>
#include <span>
#include <vector>

namespace peal::data {
namespace {

// [N, 3, H, W] in memory, whatever came.
struct Planes {
  std::int64_t count, height, width;
  std::vector<float> values;

  std::int64_t plane() const { return height * width; }
  std::span<float> image(std::int64_t k) {
    return {values.data() + k * 3 * plane(), static_cast<std::size_t>(3 * plane())};
  }
};

Planes planes_of(const Tensor& images) {
  const int dims = images.dim();
  PEAL_CHECK(images.dtype() == DType::f32 && dims >= 2 && dims <= 4 && images.numel() > 0,
             "make_grid: expected f32 images [N, C, H, W], [C, H, W] or [H, W], got ",
             images.dtype(), " ", images.shape());
  const std::int64_t channels = dims == 2 ? 1 : images.size(-3);
  PEAL_CHECK(channels == 1 || channels == 3, "make_grid: expected images of 1 or 3 channels, got ",
             channels, " of shape ", images.shape());
  const std::vector<float> given = images.to_vector<float>();
  if (channels == 3)
    return {dims == 4 ? images.size(0) : 1, images.size(-2), images.size(-1), given};
  Planes planes{dims == 4 ? images.size(0) : 1, images.size(-2), images.size(-1), {}};
  planes.values.reserve(given.size() * 3);
  for (std::int64_t k = 0; k < planes.count; ++k) {
    const auto first = given.begin() + k * planes.plane();
    for (int channel = 0; channel < 3; ++channel) {
      planes.values.insert(planes.values.end(), first, first + planes.plane());
    }
  }
  return planes;
}

void normalize(std::span<float> values, const GridOptions& o) {
  auto [low, high] = o.value_range.value_or(std::pair{0., 0.});
  if (!o.value_range) {
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    low = *least;
    high = *most;
  }
  const auto from = static_cast<float>(low), to = static_cast<float>(high);
  const auto range = static_cast<float>(std::max(high - low, 1e-5));
  for (float& value : values) value = (std::min(std::max(value, from), to) - from) / range;
}

}  // namespace

Tensor make_grid(const Tensor& images, const GridOptions& o) {
  PEAL_CHECK(o.nrow >= 1 && o.padding >= 0, "make_grid: expected nrow >= 1 and padding >= 0, got ",
             o.nrow, " and ", o.padding);
  Planes planes = planes_of(images);
  if (o.normalize && o.scale_each) {
    for (std::int64_t k = 0; k < planes.count; ++k) normalize(planes.image(k), o);
  } else if (o.normalize) {
    normalize(planes.values, o);
  }
  const std::int64_t h = planes.height, w = planes.width;
  if (planes.count == 1) return Tensor::from(planes.values, {3, h, w}, Device{});
  const std::int64_t across = std::min(o.nrow, planes.count);
  const std::int64_t down = (planes.count + across - 1) / across;
  const std::int64_t height = (h + o.padding) * down + o.padding,
                     width = (w + o.padding) * across + o.padding;
  const Tensor grid = Tensor::empty({3, height, width}, DType::f32, Device{});
  auto* to = grid.data<float>();
  std::fill_n(to, grid.numel(), static_cast<float>(o.pad_value));
  for (std::int64_t k = 0; k < planes.count; ++k) {
    const std::int64_t top = k / across * (h + o.padding) + o.padding,
                       left = k % across * (w + o.padding) + o.padding;
    const auto image = planes.image(k);
    for (std::int64_t row = 0; row < 3 * h; ++row) {
      const std::int64_t channel = row / h, y = row % h;
      std::copy_n(image.begin() + row * w, w, to + (channel * height + top + y) * width + left);
    }
  }
  return grid;
}

void save_image(const Tensor& images, const std::filesystem::path& path,
                const GridOptions& options) {
  PEAL_CHECK(path.extension() == ".png" || path.extension() == ".PNG",
             "save_image: ", path.string(), ": expected a path that ends with .png");
  const Tensor grid = make_grid(images, options);
  Image image(grid.size(1), grid.size(2));
  const auto* from = grid.data<float>();
  const std::int64_t plane = image.height * image.width;
  for (std::int64_t i = 0; i < plane; ++i) {
    for (std::int64_t channel = 0; channel < 3; ++channel) {
      const float value = from[channel * plane + i] * 255 + 0.5f;
      image.pixels[static_cast<std::size_t>(i * 3 + channel)] =
          value > 0 ? static_cast<std::uint8_t>(std::min(value, 255.f)) : std::uint8_t{0};
    }
  }
  const std::vector<std::uint8_t> bytes = encode_png(image, path.string());
  AtomicFile file(path);
  file.write(bytes.data(), bytes.size());
  file.commit(AtomicFile::Flush::no);
}

}  // namespace peal::data
