// SPDX-License-Identifier: Apache-2.0
// Writes a small set of images for images_test.sh: FOLDER/train and FOLDER/test with the classes
// "falling" and "rising", whose stripes run down or up, half of them JPEG and half PNG.
// usage: write_images FOLDER
#include <peal/tests/data/encode.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

namespace fs = std::filesystem;

namespace {

peal::data::Image stripes(bool rising, int number) {
  peal::data::Image image(16, 16);
  for (std::int64_t y = 0; y < 16; ++y) {
    for (std::int64_t x = 0; x < 16; ++x) {
      const double along =
          static_cast<double>(rising ? x + y : x - y) * (0.6 + 0.02 * (number % 9));
      for (std::int64_t c = 0; c < 3; ++c) {
        const double value = 128 + 110 * std::sin(along + number + static_cast<double>(c));
        image.row(y)[3 * x + c] = static_cast<std::uint8_t>(value);
      }
    }
  }
  return image;
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
      std::ofstream(folder / (std::to_string(i) + (jpeg ? ".jpg" : ".png")), std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()),
                 static_cast<std::streamsize>(bytes.size()));
    }
  }
  return 0;
}
