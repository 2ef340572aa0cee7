// SPDX-License-Identifier: Apache-2.0
// Writes a small set of images for images_test.sh: FOLDER/train and FOLDER/test with the classes
// "falling" and "rising", whose stripes run down or up, half of them JPEG and half PNG; and
// FOLDER/large.png, a rising one of twice their size.
// usage: write_images FOLDER
#include <peal/tests/data/encode.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace fs = std::filesystem;

namespace {

// `scale` times as large, with stripes as wide.
peal::data::Image stripes(bool rising, int number, std::int64_t scale = 1) {
  peal::data::Image image(16 * scale, 16 * scale);
  for (std::int64_t y = 0; y < 16 * scale; ++y) {
    for (std::int64_t x = 0; x < 16 * scale; ++x) {
      const double along = static_cast<double>(rising ? x + y : x - y) *
                           (0.6 + 0.02 * (number % 9)) / static_cast<double>(scale);
      for (std::int64_t c = 0; c < 3; ++c) {
        const double value = 128 + 110 * std::sin(along + number + static_cast<double>(c));
        image.row(y)[3 * x + c] = static_cast<std::uint8_t>(value);
      }
    }
  }
  return image;
}

void write(const fs::path& path, const std::vector<std::uint8_t>& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  int number = 0;
  for (const auto& [part, count] : {std::pair("train", 48), std::pair("test", 24)}) {
    for (int i = 0; i < count; ++i, ++number) {
      const bool rising = i % 2 == 0, jpeg = i % 4 < 2;
      const fs::path folder = fs::path(argv[1]) / part / (rising ? "rising" : "falling");
      fs::create_directories(folder);
      const auto image = stripes(rising, number);
      const auto bytes =
          jpeg ? peal::testing::jpeg_of(image, {95, 1, 1}) : peal::testing::png_of(image);
      write(folder / (std::to_string(i) + (jpeg ? ".jpg" : ".png")), bytes);
    }
  }
  write(fs::path(argv[1]) / "large.png", peal::testing::png_of(stripes(true, number, 2)));
  return 0;
}
