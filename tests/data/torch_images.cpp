// SPDX-License-Identifier: Apache-2.0
// Image files that PIL wrote (torch_images.py) against what it reads from them, to the byte.
// usage: torch_images FOLDER
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/safetensors.h>
#include <peal/data/images/image_folder.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

using namespace peal;

namespace {

// The largest difference of two images, -1 where their sizes differ.
int difference(const data::Image& image, const Tensor& expected) {
  if (expected.shape() != Shape{image.height, image.width, image.channels}) return -1;
  int largest = 0;
  const auto* other = expected.data<std::uint8_t>();
  for (std::size_t i = 0; i < image.pixels.size(); ++i) {
    largest = std::max(largest, std::abs(image.pixels[i] - other[i]));
  }
  return largest;
}

bool check_files(const std::filesystem::path& folder) {
  int wrong = 0, count = 0;
  for (const auto& [name, expected] : load_safetensors(folder / "files").tensors) {
    const int off = difference(data::image_files(folder / name)->image(0), expected);
    ++count;
    if (off == 0) continue;
    ++wrong;
    std::fprintf(stderr, "%s: pixels differ by %d\n", name.c_str(), off);
  }
  std::printf("%d files, %d with other bytes than PIL's\n", count, wrong);
  return count > 50 && wrong == 0;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) return 2;
  return check_files(argv[1]) ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
